import { linkTo } from "../address.js";
import { make } from "../element.js";
import { pressureBar } from "../parts/bar.js";
import { nodeLink } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { table } from "../parts/table.js";
import { hintOf } from "../request.js";
import { change } from "../scheduler.js";
import { counted, figure } from "../units.js";
import { saidReason } from "../words.js";

const SHOWN = 100;
const COLUMNS = [
  { title: "node" },
  { title: "answer" },
  { title: "pressure with it", numeric: true },
  { title: "reserved", numeric: true },
];

/** “Why not?”: what would be answered to a request now, and why, node by node. Nothing is reserved. */
export const why = {
  title: "Why not?",
  everyMs: 0,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const hint = hintOf(query);
    if (!hint) return null;
    return await change("POST", `v1/explain?limit=${SHOWN}`, { hint }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show(content, { address: { query } }) {
    return [
      make(
        "p",
        { class: "soft" },
        "What would be answered to this request now. It is only asked: nothing is reserved, no rotation moves.",
      ),
      addressForm({
        name: "Why not?",
        button: "Ask",
        link: (given) => linkTo(["why"], given),
        fields: [
          { name: "cpu", label: "CPUs", type: "number", min: 0, max: 4294967295, value: query.get("cpu") ?? "1" },
          { name: "memory", label: "Memory (MiB)", type: "number", min: 0, value: query.get("memory") ?? "1024" },
          { name: "image", label: "Image (optional)", value: query.get("image") },
          { name: "template", label: "or a template, instead of a size", value: query.get("template") },
        ],
        further: {
          title: "Labels, resources, spread",
          fields: [
            { name: "require", label: "Labels (zone=a|b, tier=fast)", value: query.get("require") },
            { name: "resources", label: "Resources (gpu=1)", value: query.get("resources") },
            { name: "spread", label: "Spread key", value: query.get("spread") },
            { name: "over", label: "over", placeholder: "node", value: query.get("over") },
            { name: "max", label: "at most, each", type: "number", min: 1, value: query.get("max") },
            { name: "skew", label: "or differing by", type: "number", min: 1, value: query.get("skew") },
          ],
        },
      }),
      content ? answer(content) : null,
    ];
  },
};

/** @param {any} content */
function answer(content) {
  const reasons = Object.entries(content.reasons).sort(([, one], [, other]) => Number(other) - Number(one));
  return make(
    "section",
    { "aria-label": "The answer" },
    make(
      "p",
      { class: "lead", role: "status" },
      content.node
        ? [
            make("span", { class: "status good" }, "● "),
            "It would be placed on ",
            nodeLink(content.node.node_id),
            ` by ${content.strategy}${content.degraded ? ", as the last resort: no candidate is fresh" : ""}.`,
          ]
        : [make("span", { class: "status bad" }, "✕ "), "It would be refused: no node can take it."],
    ),
    content.over_limit ? make("p", {}, overLimit(content.over_limit)) : null,
    reasons.length
      ? [
          make("h2", {}, "Left out"),
          make(
            "ul",
            { class: "tally" },
            reasons.map(([reason, nodes]) =>
              make(
                "li",
                {},
                make("strong", {}, counted(Number(nodes), "node")),
                `: ${saidReason(reason)} `,
                make("code", { class: "soft" }, reason),
              ),
            ),
          ),
        ]
      : null,
    make("h2", {}, "Node by node"),
    table({
      caption: "The answer, node by node",
      columns: COLUMNS,
      none: "No node is listed.",
      rows: [...content.nodes].sort(byRank).map((node) => row(node, content.node?.node_id)),
    }),
    content.cursor ? make("p", { class: "soft" }, `The first ${SHOWN} are shown.`) : null,
  );
}

/** @param {any} limit */
function overLimit({ limit, current, pending, requested, maximum }) {
  return [
    "Commonest limit: ",
    make("code", {}, limit),
    ` – ${figure(limit, current)} there, ${figure(limit, pending)} reserved, ${figure(limit, requested)} asked for; ` +
      `at most ${figure(limit, maximum)}.`,
  ];
}

/** @param {any} one @param {any} other */
function byRank(one, other) {
  return (one.rank ?? Infinity) - (other.rank ?? Infinity);
}

/** @param {any} node @param {string | undefined} chosen */
function row(node, chosen) {
  return {
    key: node.node_id,
    cells: [
      nodeLink(node.node_id),
      node.rank === null
        ? [
            make("span", { class: "status bad" }, "✕ "),
            saidReason(node.reason),
            node.over_limit ? [": ", overLimit(node.over_limit).slice(1)] : null,
          ].flat()
        : [
            make("span", { class: "status good" }, "● "),
            node.node_id === chosen ? "would be chosen" : `rank ${node.rank + 1}`,
          ],
      pressureBar(node.pressure.highest),
      node.pending.sandbox_count ? counted(node.pending.sandbox_count, "sandbox", "sandboxes") : "–",
    ],
  };
}
