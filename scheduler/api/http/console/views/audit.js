import { linkTo } from "../address.js";
import { make } from "../element.js";
import { nodeLink, reservationLink } from "../parts/facts.js";
import { pager, table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { read } from "../scheduler.js";

const COLUMNS = [{ title: "when" }, { title: "who" }, { title: "did" }, { title: "to" }, { title: "how" }];

/** @type {Record<string, string>} */
const ACTS = {
  "node.put": "listed, moved or drained a node",
  "nodes.replace": "replaced the list of nodes",
  "node.remove": "removed a node",
  "node.cordon": "cordoned a node",
  "node.uncordon": "uncordoned a node",
  "reservation.cancel": "cancelled a reservation",
  "template.put": "declared a template",
  "template.delete": "deleted a template",
  "settings.put": "put settings into force",
};

/** Who did what, newest first. */
export const audit = {
  title: "Audit",
  everyMs: 5000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    return await read("v1/audit", { limit: 50, cursor: query.get("cursor") }, signal);
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show({ acts, cursor }, { address }) {
    return [
      table({
        caption: "Acts, newest first",
        columns: COLUMNS,
        rows: acts.map(row),
        none: "Nobody has done anything yet. Drains, cordons, removals, templates, settings and cancels by admins are kept.",
      }),
      pager(["audit"], Object.fromEntries(address.query), cursor),
    ];
  },
};

/** @param {any} done @param {number} at */
function row({ instant_ms: atMs, actor, act, subject, details }, at) {
  return {
    key: `${atMs} ${act} ${subject} ${at}`,
    cells: [
      when(atMs),
      actor || make("span", { class: "soft" }, "anyone: there are no keys"),
      ACTS[act] ?? act,
      act.startsWith("node.")
        ? nodeLink(subject)
        : act.startsWith("reservation.")
          ? reservationLink(subject)
          : act.startsWith("settings.")
            ? make("a", { href: linkTo(["settings"]) }, subject || "the ledger")
            : subject || "–",
      make(
        "span",
        { class: "soft" },
        Object.entries(details)
          .filter(([, value]) => value !== "")
          .map(([name, value]) => `${name}: ${said(value)}`)
          .join(", ") || "–",
      ),
    ],
  };
}

/** @param {unknown} value */
function said(value) {
  return typeof value === "string" || typeof value === "number" ? String(value) : JSON.stringify(value);
}
