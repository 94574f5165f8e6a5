import { linkTo } from "../address.js";
import { concerns, pendingForMs } from "../attention.js";
import { make } from "../element.js";
import { bar } from "../parts/bar.js";
import { fleetPicture } from "../parts/fleet.js";
import { empty } from "../parts/notice.js";
import { sparkline } from "../parts/sparkline.js";
import { Problem, read } from "../scheduler.js";
import { bytes, count, counted, duration, percent, rate } from "../units.js";
import { saidState } from "../words.js";

const PAGE = 1000;
const STATES = ["ready", "connecting", "lingering", "unhealthy"];
const FIELDS = "status,cordoned,ineligible_reason,pressure";

/** First what is wrong, then how much goes on, then the fleet. */
export const overview = {
  title: "Overview",
  everyMs: () => pictureMs(),

  /** @param {import("../address.js").Address} _address @param {AbortSignal} signal */
  async load(_address, signal) {
    const [nodes, settings] = await Promise.all([readFleet(signal), readOwnSettings(signal)]);
    return { nodes, settings };
  },

  /** @param {any} content @param {{ summary: any, problem: any, history: import("../history.js").History }} context */
  show(content, { summary, problem, history }) {
    return [
      summary ? terms(summary) : null,
      attention(concerns(summary, problem, content), summary !== null),
      summary ? strip(summary, history) : null,
      summary ? totals(summary) : null,
      content.nodes.length
        ? fleetPicture(content.nodes)
        : empty(
            "No node is listed yet. They come from the configuration, from Kubernetes, from PUT /v1/nodes or from their own first report.",
          ),
    ];
  },
};

/** The picture is read the more rarely, the larger the fleet. */
let nodesSeen = 0;
function pictureMs() {
  return Math.max(5000, nodesSeen * 10);
}

/** What the replica read for another tab a moment ago will do. @param {AbortSignal} signal */
async function readFleet(signal) {
  const nodes = [],
    max_age = `${Math.round(pictureMs() / 2)}ms`;
  let cursor = null;
  do {
    /** @type {any} */
    const page = await read("v1/nodes", { fields: FIELDS, limit: PAGE, cursor, max_age }, signal);
    nodes.push(...page.nodes);
    cursor = page.cursor;
  } while (cursor);
  nodesSeen = nodes.length;
  return nodes;
}

/** What this replica says of its settings, also when they keep it from being ready. @param {AbortSignal} signal */
async function readOwnSettings(signal) {
  try {
    return (await read("readyz", {}, signal)).settings;
  } catch (problem) {
    if (problem instanceof Problem) return problem.content.settings ?? null;
    throw problem;
  }
}

/** @param {import("../attention.js").Concern[]} found @param {boolean} isKnown */
function attention(found, isKnown) {
  return make(
    "section",
    { "aria-labelledby": "attention-title", class: "attention", key: "attention" },
    make("h2", { id: "attention-title" }, "Needs attention"),
    make("p", { class: "unseen", role: "status" }, isKnown ? `${counted(found.length, "matter")} now` : null),
    found.length
      ? make(
          "ul",
          {},
          found.map(({ key, tone, title, reason, link }) =>
            make(
              "li",
              { key, class: `notice ${tone}` },
              make(
                "strong",
                {},
                make("span", { "aria-hidden": "true" }, tone === "bad" ? "✕ " : "▲ "),
                link ? make("a", { href: link }, title) : title,
              ),
              make("span", { class: "why" }, reason),
            ),
          ),
        )
      : isKnown
        ? make(
            "p",
            { class: "notice good" },
            make("span", { "aria-hidden": "true" }, "● "),
            "Nothing does: nodes report, requests are placed, the ledger answers.",
          )
        : empty("Not known yet."),
  );
}

/** @param {any} summary @param {import("../history.js").History} history */
function strip(summary, history) {
  const { rates, reservations, nodes } = summary;
  const refused = sum(rates.refused),
    oldestMs = pendingForMs(summary);
  const line = (/** @type {string} */ name, /** @type {string} */ what, /** @type {(value: number) => string} */ say) =>
    sparkline(what, history.of(name), say);
  return make(
    "section",
    { "aria-label": "Now", class: "strip", key: "strip" },
    figure("Placed", rate(rates.placed), line("placed", "Placed", rate)),
    figure("Refused", rate(refused), line("refused", "Refused", rate), linkTo(["decisions"])),
    figure(
      "Pending",
      count(reservations.pending ?? 0),
      line("pending", "Pending reservations", count),
      linkTo(["reservations"], { state: "pending" }),
    ),
    figure("CPUs in use", percent(part(summary, "cpu_count")), line("cpu", "CPUs in use", percent)),
    figure("Memory in use", percent(part(summary, "memory_bytes")), line("memory", "Memory in use", percent)),
    figure(
      "Nodes",
      count(sum(nodes)),
      make(
        "span",
        { class: "soft" },
        STATES.filter((state) => nodes[state])
          .map((state) => `${count(nodes[state])} ${saidState(state).word}`)
          .join(", ") || "none",
      ),
      linkTo(["nodes"]),
    ),
    figure(
      "Oldest pending",
      oldestMs === null ? "none" : duration(oldestMs),
      null,
      linkTo(["reservations"], { state: "pending" }),
    ),
    figure("Largest free", largest(summary.largest_free), null),
  );
}

/** The most that one node of any class has free: no larger request is placed. @param {Record<string, any>} byClass */
function largest(byClass) {
  const most = (/** @type {string} */ name) => Math.max(...Object.values(byClass).map((free) => free[name] ?? -1));
  const cpus = most("cpu_count"),
    memory = most("memory_bytes");
  return cpus < 0 ? "–" : `${count(cpus)} CPUs, ${memory < 0 ? "–" : bytes(memory)}`;
}

/** @param {any} summary */
function terms({ domain, strategy, settings_revision, replicas, ledger }) {
  return make(
    "p",
    { class: "soft", key: "terms" },
    `Domain ${domain} · strategy ${strategy} · settings of revision ${settings_revision} · ${counted(replicas.length, "replica")} · ledger ${ledger.rebuilding ? "is being rebuilt" : "whole"}`,
  );
}

/** @param {string} name @param {string} value @param {any} below @param {string} [link] */
function figure(name, value, below, link) {
  return make(
    "div",
    { class: "figure", key: name },
    make("p", { class: "name" }, link ? make("a", { href: link }, name) : name),
    make("p", { class: "value" }, value),
    below,
  );
}

/** CPUs and memory, and whatever else nodes report. @param {any} summary */
function totals({ capacity, allocated, reserved }) {
  const further = Object.keys(capacity).filter((name) => name !== "cpu_count" && name !== "memory_bytes");
  /** @type {[string, string, (value: number) => string][]} */
  const amounts = [
    ["cpu_count", "CPUs", count],
    ["memory_bytes", "Memory", bytes],
    ...further.map(
      (name) =>
        /** @type {[string, string, (value: number) => string]} */ ([name, name, name === "disk" ? bytes : count]),
    ),
  ];
  return make(
    "section",
    { "aria-label": "Capacity", class: "totals", key: "totals" },
    amounts.map(([name, title, say]) =>
      make(
        "div",
        { key: name },
        make("h3", {}, title),
        bar(title, {
          capacity: capacity[name] || null,
          allocated: allocated[name] ?? 0,
          reserved: reserved[name] ?? 0,
          say,
        }),
      ),
    ),
  );
}

/** @param {Record<string, number>} numbers */
export function sum(numbers) {
  return Object.values(numbers).reduce((total, each) => total + each, 0);
}

/** What is allocated or reserved, of what there is. @param {any} summary @param {string} name */
export function part(summary, name) {
  const capacity = summary.capacity[name];
  return capacity ? (summary.allocated[name] + summary.reserved[name]) / capacity : null;
}
