import { make } from "../element.js";
import { facts } from "../parts/facts.js";
import { table } from "../parts/table.js";
import { when } from "../parts/time.js";
import { Problem, read } from "../scheduler.js";
import { bytes, count, duration } from "../units.js";

const COLUMNS = [
  { title: "setting" },
  { title: "in force" },
  { title: "from" },
  { title: "this replica", means: "the one that answers: what it is configured with, and where from" },
];

/** The settings in force, where each came from, and who agrees. */
export const settings = {
  title: "Settings",
  everyMs: 10_000,

  /** @param {import("../address.js").Address} _address @param {AbortSignal} signal */
  async load(_address, signal) {
    const [agreed, replicas, status] = await Promise.all([
      read("v1/settings", {}, signal),
      read("v1/replicas", {}, signal),
      read("readyz", {}, signal)
        .then((ready) => ready.settings)
        .catch((problem) => {
          if (problem instanceof Problem) return problem.content.settings ?? null;
          throw problem;
        }),
    ]);
    return { agreed, replicas, status };
  },

  /** @param {any} content */
  show({ agreed, replicas, status }) {
    const own = agreed.replica ?? { replica_id: null, settings: {}, sources: {} };
    const [ownValues, ownSources, sources] = [own.settings, own.sources, agreed.sources].map(
      (tree) => new Map(flat(tree)),
    );
    const known = { ownValues, ownSources, sources, differing: new Set(status?.differing ?? []), agreed };
    return [
      make(
        "p",
        { class: "soft" },
        "All replicas place by these. They live in the ledger; the configuration with the highest settings.revision wrote them.",
      ),
      facts([
        ["Domain", agreed.domain],
        ["Revision", count(agreed.revision)],
        ["Epoch", make("code", {}, agreed.epoch)],
        ["Ledger", agreed.rebuilding ? "rebuilding" : "whole"],
        ["Time ahead of Redis' clock", agreed.clock_skew_ms ? duration(agreed.clock_skew_ms) : "none"],
        [
          "Replicas",
          make(
            "ul",
            { class: "plain" },
            replicas.replicas.map((/** @type {any} */ each) =>
              make(
                "li",
                { key: each.replica_id },
                make("code", {}, each.replica_id),
                each.replica_id === own.replica_id ? ", which answers," : null,
                make("span", { class: "soft" }, " expires "),
                when(each.expires_at_ms),
              ),
            ),
          ),
        ],
      ]),
      table({
        caption: "Settings in force",
        columns: COLUMNS,
        none: "The ledger has no settings yet.",
        rows: flat(agreed.settings).map(([name, value]) => ({
          key: name,
          cells: [make("code", {}, name), said(name, value), from(name, value, known), here(name, value, known)],
        })),
      }),
    ];
  },
};

/**
 * @typedef {{ ownValues: Map<string, any>, ownSources: Map<string, any>, sources: Map<string, any>,
 *   differing: Set<string>, agreed: any }} Known
 * @param {string} name @param {any} value @param {Known} known
 */
function from(name, value, { ownValues, ownSources, sources, agreed }) {
  const source = sources.get(name);
  if (source === "default") return make("span", { class: "soft" }, "default");
  const ours = ownValues.has(name) && isSame(ownValues.get(name), value) ? ownSources.get(name) : "configuration";
  return source ? `${ours}, revision ${agreed.revision}` : "–";
}

/** @param {string} name @param {any} value @param {Known} known */
function here(name, value, { ownValues, ownSources, differing }) {
  if (ownValues.has(name) && !isSame(ownValues.get(name), value))
    return [
      make("span", { class: "status watch" }, "▲ is configured otherwise: "),
      said(name, ownValues.get(name)),
      make("span", { class: "soft" }, ` ${ownSources.get(name)}`),
    ];
  return differing.has(name) || differing.has(name.split(".")[0])
    ? make("span", { class: "status watch" }, "▲ is configured otherwise")
    : "agrees";
}

/** @param {any} one @param {any} other */
function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Nested members by their path. @param {Record<string, any>} tree @param {string} [above] @returns {[string, any][]} */
function flat(tree, above = "") {
  return Object.entries(tree).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? flat(value, `${above}${name}.`)
      : [[`${above}${name}`, value]],
  );
}

/** @param {string} name @param {any} value */
function said(name, value) {
  if (value === null) return make("span", { class: "soft" }, "no limit");
  if (typeof value !== "number") return Array.isArray(value) ? value.join(", ") || "none" : String(value);
  if (name.endsWith("_ms")) return duration(value);
  return name.endsWith("_bytes") || name.includes("_bytes_") ? bytes(value) : count(value);
}
