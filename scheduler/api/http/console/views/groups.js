import { linkTo } from "../address.js";
import { make } from "../element.js";
import { bar } from "../parts/bar.js";
import { nodeLink, warmKeys } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";
import { bytes, count, percent } from "../units.js";

const PAGE = 50;
const GROUPS = [
  { title: "key" },
  { title: "node" },
  { title: "sandboxes" },
  { title: "CPUs" },
  { title: "memory" },
  { title: "opened" },
];
const WARM = [{ title: "node" }, { title: "given last", means: "images and templates, the latest first" }];

/** What keeps sandboxes of one image or template together: open groups, and what is warm on which node. */
export const groups = {
  title: "Groups and warm keys",
  short: "Groups, keys",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const { cursor, key, node_id, warm } = Object.fromEntries(query);
    const [open, held] = await Promise.all([
      read("v1/groups", { limit: PAGE, cursor }, signal),
      read("v1/warm-keys", { limit: PAGE, cursor: warm, key, node_id }, signal),
    ]);
    return { open, held };
  },

  /** @param {any} content @param {{ address: import("../address.js").Address, strategy: string }} context */
  show({ open, held }, { address, strategy }) {
    const query = Object.fromEntries(address.query);
    return [
      make("h2", {}, "Open groups"),
      make(
        "p",
        { class: "soft" },
        `${count(open.total)} open. A group takes sandboxes of one key on one node until a budget is used up.`,
      ),
      table({
        caption: "Open groups, most recently used first",
        columns: GROUPS,
        none:
          strategy === "grouped_round_robin"
            ? "No group is open: the first sandbox of an image or template opens one."
            : `The strategy in force, ${strategy || "unknown"}, keeps no groups; grouped_round_robin does.`,
        rows: open.groups.map(groupRow),
      }),
      pager(["groups"], query, open.cursor),
      ...warmSection(held, query),
    ];
  },
};

/** @param {any} group */
function groupRow(group) {
  const budget = (
    /** @type {string} */ what,
    /** @type {number} */ used,
    /** @type {number} */ most,
    /** @type {(value: number) => string} */ say,
  ) =>
    most
      ? bar(what, { capacity: most, allocated: used, reserved: 0, say })
      : [say(used), make("span", { class: "soft" }, " no budget")];
  return {
    key: `${group.key} ${group.sequence}`,
    cells: [
      make("span", { class: "id" }, group.key),
      nodeLink(group.node_id),
      budget("Sandboxes", group.sandbox_count, group.max_sandbox_count, count),
      budget("CPUs", group.cpu_count, group.max_cpu_count, count),
      budget("Memory", group.memory_mb * 2 ** 20, group.max_memory_mb * 2 ** 20, bytes),
      when(group.opened_at_ms),
    ],
  };
}

/** @param {any} held @param {Record<string, string>} query */
function warmSection({ slack, nodes, cursor }, query) {
  const { key = "", node_id = "" } = query;
  return [
    make("h2", {}, "Warm keys"),
    make(
      "p",
      { class: "soft" },
      slack === null
        ? "Affinity is off: placements do not look for nodes that hold an image or template. affinity.slack turns it on."
        : `A node that holds the image or template is chosen, as long as it is fuller by ${percent(slack)} of its capacity at most.`,
    ),
    addressForm({
      name: "Filter warm keys",
      button: "Filter",
      link: (given) => linkTo(["groups"], given),
      fields: [
        { name: "key", label: "Key (image:… or template:…)", value: key },
        { name: "node_id", label: "Node", value: node_id },
      ],
    }),
    table({
      caption: key ? "Nodes with this key, the last one first" : "Nodes with what they were given last",
      columns: WARM,
      none:
        key || node_id
          ? "Nothing is warm like that."
          : slack === null
            ? "Nothing is noted while affinity is off."
            : cursor
              ? "None of the nodes on this page holds anything yet."
              : "No node holds anything yet: each placement notes what it gave.",
      rows: nodes.map((/** @type {any} */ node) => ({
        key: node.node_id,
        cells: [nodeLink(node.node_id), warmKeys(node.keys)],
      })),
    }),
    pager(["groups"], query, cursor, "warm"),
  ];
}
