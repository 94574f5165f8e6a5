import { make } from "../element.js";
import { bar } from "../parts/bar.js";
import { nodeLink } from "../parts/facts.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";
import { bytes, count } from "../units.js";

const COLUMNS = [
  { title: "key" },
  { title: "node" },
  { title: "sandboxes" },
  { title: "CPUs" },
  { title: "memory" },
  { title: "opened" },
];

/** Open placement groups: what keeps sandboxes of one image or template together. */
export const groups = {
  title: "Groups",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    return await read("v1/groups", { limit: 50, cursor: query.get("cursor") }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address, strategy: string }} context */
  show({ total, groups: found, cursor }, { address, strategy }) {
    return [
      make(
        "p",
        { class: "soft" },
        `${count(total)} open. A group takes sandboxes of one key on one node until a budget is used up.`,
      ),
      table({
        caption: "Open groups, most recently used first",
        columns: COLUMNS,
        none:
          strategy === "grouped_round_robin"
            ? "No group is open: the first sandbox of an image or template opens one."
            : `The strategy in force, ${strategy || "unknown"}, keeps no groups; grouped_round_robin does.`,
        rows: found.map(row),
      }),
      pager(["groups"], Object.fromEntries(address.query), cursor),
    ];
  },
};

/** @param {any} group */
function row(group) {
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
