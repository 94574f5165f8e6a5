import { linkTo } from "../address.js";
import { make } from "../element.js";
import { nodeLink, reservationLink, size } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { status } from "../parts/status.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";
import { bytes } from "../units.js";

/** @type {[string, string][]} */
const STATES = [
  ["", "any"],
  ["pending", "pending"],
  ["confirmed", "confirmed"],
  ["settled", "settled"],
  ["cancelled", "cancelled"],
  ["expired", "expired"],
];
const COLUMNS = [
  { title: "reservation" },
  { title: "state" },
  { title: "node" },
  { title: "size" },
  { title: "sandbox" },
  { title: "made" },
  { title: "deadline or end" },
];

/** Reservations, oldest first. */
export const reservations = {
  title: "Reservations",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const { state, node_id, cursor } = Object.fromEntries(query);
    return await read("v1/reservations", { state, node_id, cursor, limit: 50 }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show(content, { address }) {
    const query = Object.fromEntries(address.query);
    const { state = "", node_id = "" } = query;
    return [
      addressForm({
        name: "Filter reservations",
        button: "Filter",
        link: (given) => linkTo(["reservations"], given),
        fields: [
          { name: "state", label: "State", options: STATES, value: state },
          { name: "node_id", label: "Node", value: node_id },
        ],
      }),
      reservationTable(
        content.reservations,
        state || node_id
          ? "No reservation is like that."
          : "No reservation yet. POST /v1/schedule makes one for each sandbox to be; finished ones stay readable for an hour.",
      ),
      pager(["reservations"], query, content.cursor),
    ];
  },
};

/** @param {any[]} found @param {string} none */
export function reservationTable(found, none) {
  return table({
    caption: "Reservations",
    columns: COLUMNS,
    none,
    rows: found.map((each) => ({
      key: each.reservation_id,
      cells: [
        reservationLink(each.reservation_id),
        status(each.state),
        nodeLink(each.node_id),
        size(each, bytes),
        each.sandbox_id ? make("span", { class: "id" }, each.sandbox_id) : make("span", { class: "soft" }, "not told"),
        when(each.created_at_ms),
        when(each.finished_at_ms ?? each.expires_at_ms),
      ],
    })),
  });
}
