import { linkTo } from "../address.js";
import { make } from "../element.js";
import { cpuBar, memoryBar, pressureBar } from "../parts/bar.js";
import { nodeLink } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { nodeStatus } from "../parts/status.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";
import { count, counted } from "../units.js";

const PAGE = 50;
const FIELDS = "status,cordoned,ineligible_reason,pressure,snapshot,pending,last_seen_ms";
/** @type {[string, string][]} */
const STATES = [
  ["", "any"],
  ["ready", "ready"],
  ["connecting", "connecting"],
  ["unhealthy", "unhealthy"],
  ["lingering", "draining"],
];
const COLUMNS = [
  { title: "node", sort: "node_id" },
  { title: "state" },
  {
    title: "pressure",
    sort: "pressure",
    numeric: true,
    means: "load, reservations included, as a part of the effective capacity: the greater of CPU and memory",
  },
  { title: "CPUs", sort: "cpu_count", numeric: true },
  { title: "memory", sort: "memory_bytes", numeric: true },
  { title: "sandboxes", sort: "sandbox_count", numeric: true },
  { title: "reserved", sort: "pending", numeric: true, means: "sandboxes promised beyond the node's own report" },
  { title: "last report", sort: "last_seen_ms" },
];

/** Every node, a page at a time: sorted, filtered. */
export const nodes = {
  title: "Nodes",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const { status, sort, cursor } = Object.fromEntries(query);
    return await read("v1/nodes", { status, sort, cursor, fields: FIELDS, limit: PAGE }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show(content, { address }) {
    const query = Object.fromEntries(address.query);
    const { status = "", sort = "node_id" } = query;
    return [
      make(
        "div",
        { class: "tools" },
        addressForm({
          name: "Filter nodes",
          button: "Filter",
          link: (given) => linkTo(["nodes"], given),
          fields: [{ name: "status", label: "State", options: STATES, value: status }],
        }),
        addressForm({
          name: "Open a node",
          button: "Open",
          link: ({ id }) => linkTo(["nodes", id]),
          fields: [{ name: "id", label: "Node", required: true }],
        }),
      ),
      table({
        caption: "Nodes",
        columns: COLUMNS,
        rows: content.nodes.map(row),
        none: status
          ? "No node is in this state."
          : "No node is listed yet. They come from the configuration, from Kubernetes, from PUT /v1/nodes or from their own first report.",
        sorting: { current: sort, link: (next) => linkTo(["nodes"], { status, sort: next }) },
      }),
      pager(["nodes"], query, content.cursor),
    ];
  },
};

/** @param {any} node */
function row(node) {
  const shot = node.snapshot;
  return {
    key: node.node_id,
    cells: [
      nodeLink(node.node_id),
      nodeStatus(node),
      pressureBar(node.pressure.highest),
      cpuBar(node),
      memoryBar(node),
      [
        count(shot.sandbox_count),
        shot.paused_sandbox_count ? make("span", { class: "soft" }, ` + ${shot.paused_sandbox_count} paused`) : null,
      ],
      node.pending.sandbox_count ? counted(node.pending.sandbox_count, "sandbox", "sandboxes") : "–",
      when(node.last_seen_ms),
    ],
  };
}
