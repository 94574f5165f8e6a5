import { linkTo } from "../address.js";
import { make } from "../element.js";
import { nodeLink, reservationLink, size } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { status } from "../parts/status.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";
import { bytes, count, counted, figure } from "../units.js";
import { REASONS, saidReason } from "../words.js";
import { askedAgain, saidPairs, saidSpread } from "../request.js";

const PAGE = 100;
const MIB = 2 ** 20;
const COLUMNS = [
  { title: "when" },
  { title: "outcome" },
  { title: "asked for" },
  { title: "node" },
  { title: "reservation" },
  { title: "caller" },
  { title: "strategy" },
];

/** The last decisions, newest first, and what kept nodes out of those that were refused. */
export const decisions = {
  title: "Decisions",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const { reason, node_id, caller, cursor } = Object.fromEntries(query);
    return await read("v1/decisions", { reason, node_id, caller, cursor, limit: PAGE }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show({ decisions: found, cursor }, { address }) {
    const query = Object.fromEntries(address.query);
    const { reason = "", node_id = "", caller = "" } = query;
    return [
      addressForm({
        name: "Filter decisions",
        button: "Filter",
        link: (given) => linkTo(["decisions"], given),
        fields: [
          {
            name: "reason",
            label: "Refused because",
            options: [["", "any outcome"], ...Object.entries(REASONS)],
            value: reason,
          },
          { name: "node_id", label: "Node", value: node_id },
          { name: "caller", label: "Caller", value: caller },
        ],
      }),
      tally(found),
      table({
        caption: "Decisions",
        columns: COLUMNS,
        rows: found.map(row),
        none:
          reason || node_id || caller
            ? "None of the decisions that are kept is like that."
            : "Nothing has been decided yet. The last ones are kept, as many as decisions.keep says.",
      }),
      pager(["decisions"], query, cursor),
    ];
  },
};

/** How often which outcome is among those that are shown. @param {any[]} found */
function tally(found) {
  const refused = found.filter(({ outcome }) => outcome === "refused");
  if (!refused.length) return null;
  /** @type {Map<string, number>} */
  const byReason = new Map();
  for (const { reason } of refused) byReason.set(reason, (byReason.get(reason) ?? 0) + 1);
  return make(
    "p",
    { key: "tally" },
    `Of these ${count(found.length)}, ${count(refused.length)} refused: `,
    [...byReason]
      .sort(([, one], [, other]) => other - one)
      .flatMap(([reason, many], at) => [
        at ? ", " : "",
        make("a", { href: linkTo(["decisions"], { reason }) }, `${count(many)} ${saidReason(reason)}`),
      ]),
    ".",
  );
}

/** @param {any} decision */
function row(decision) {
  const {
    instant_ms: atMs,
    outcome,
    reason,
    hint,
    node_id,
    reservation_id,
    caller,
    strategy,
    degraded,
    request_id,
  } = decision;
  return {
    key: `${atMs} ${request_id} ${reservation_id}`,
    cells: [
      when(atMs),
      [
        status(outcome),
        reason ? ` ${saidReason(reason)}` : null,
        degraded ? " as the last resort" : null,
        keptOut(decision),
      ],
      hint
        ? [asked(hint), outcome === "refused" ? [" ", make("a", { href: linkTo(["why"], askedAgain(hint)) }, "and now?")] : null].flat()
        : "any node, reserving nothing",
      nodeLink(node_id),
      reservation_id ? reservationLink(reservation_id) : "–",
      caller || "–",
      strategy || "–",
    ],
  };
}

/** Nodes by the first reason that kept each out. @param {any} decision */
function keptOut({ reasons, over_limit: over }) {
  const listed = Object.entries(reasons);
  return listed.length
    ? make(
        "span",
        { class: "soft why" },
        listed.map(([reason, nodes]) => `${counted(Number(nodes), "node")}: ${saidReason(reason)}`).join("; "),
        over ? ` (${over.limit}: at most ${figure(over.limit, over.maximum)})` : null,
      )
    : null;
}

/** @param {any} hint */
function asked({ kind, template_id, cpu_count, memory_mb, images, require, resources, spread }) {
  const amount =
    kind === "sandbox"
      ? `template ${template_id || "not stated"}`
      : size({ cpu_count, memory_bytes: (memory_mb ?? 0) * MIB }, bytes);
  const further = [images?.join(", "), saidPairs(resources), saidPairs(require), spread && saidSpread(spread)];
  return [
    amount,
    ...further.filter(Boolean).map((text) => make("span", { class: "soft why" }, text)),
  ];
}
