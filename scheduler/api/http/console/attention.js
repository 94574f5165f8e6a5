// What needs an operator's attention, worst first, each with its reason and where to look.

import { linkTo } from "./address.js";
import { counted, duration, percent, rate } from "./units.js";
import { saidReason } from "./words.js";

/** @typedef {{ key: string, tone: "bad" | "watch", title: string, reason: string, link?: string }} Concern */

const OLD_PENDING_MS = 60_000;
const LONG_WAIT_MS = 5_000;
const SKEW_MS = 1_000;
const NAMED = 5;

/**
 * @param {any} summary of `GET /v1/summary`, null before the first
 * @param {import("./scheduler.js").Problem | null} problem why the last reading failed
 * @param {{ nodes: any[] | null, settings: any | null }} known nodes with their pressure; the settings of `GET /readyz`
 * @returns {Concern[]}
 */
export function concerns(summary, problem, { nodes, settings }) {
  const found = [...unreachable(problem)];
  if (summary) found.push(...ofLedger(summary), ...ofNodes(summary), ...ofRequests(summary));
  if (nodes) found.push(...ofPressure(nodes), ...ofAvoided(nodes), ...ofCordoned(nodes));
  if (settings?.differing?.length)
    found.push({
      key: "settings",
      tone: "watch",
      title: "Replicas are configured differently",
      reason: `This replica says otherwise of ${settings.differing.join(", ")}; revision ${settings.revision} of the ledger is in force.`,
      link: linkTo(["settings"]),
    });
  return found.sort((one, other) => Number(one.tone === "watch") - Number(other.tone === "watch"));
}

/** @param {import("./scheduler.js").Problem | null} problem @returns {Concern[]} */
function unreachable(problem) {
  if (!problem || problem.needsKey) return [];
  const title =
    problem.code === "unanswered"
      ? "The scheduler does not answer"
      : problem.code.startsWith("store_")
        ? "The ledger cannot be reached"
        : "The scheduler answers with a problem";
  return [
    {
      key: "unreachable",
      tone: "bad",
      title,
      reason: `${problem.message}. ${problem.advice} What is shown is what was read last.`,
    },
  ];
}

/** @param {any} summary @returns {Concern[]} */
function ofLedger({ ledger }) {
  /** @type {Concern[]} */
  const found = [];
  if (ledger.rebuilding)
    found.push({
      key: "rebuilding",
      tone: "bad",
      title: "The ledger was lost and is being rebuilt",
      reason: "Placements are refused until each replica has put back what it remembers, or a minute has passed.",
    });
  if (Math.abs(ledger.clock_skew_ms) > SKEW_MS)
    found.push({
      key: "skew",
      tone: "watch",
      title: "The Redis server's clock was set back",
      reason: `The ledger's time is ${duration(ledger.clock_skew_ms)} ahead of it, and waits until the clock has caught up.`,
    });
  return found;
}

/** @param {any} summary @returns {Concern[]} */
function ofNodes({ nodes }) {
  /** @type {Concern[]} */
  const found = [];
  if (nodes.unhealthy)
    found.push({
      key: "unhealthy",
      tone: "bad",
      title: `${counted(nodes.unhealthy, "node")} unhealthy`,
      reason: "Silent for longer than report_ttl, or saying so: chosen only as a last resort.",
      link: linkTo(["nodes"], { status: "unhealthy" }),
    });
  if (nodes.connecting)
    found.push({
      key: "connecting",
      tone: "watch",
      title: `${counted(nodes.connecting, "node")} connecting`,
      reason: "They have not reported yet, or do not say that they are ready.",
      link: linkTo(["nodes"], { status: "connecting" }),
    });
  return found;
}

/** @param {any[]} nodes @returns {Concern[]} */
function ofPressure(nodes) {
  const over = nodes.filter((node) => node.pressure.highest > 1);
  if (!over.length) return [];
  const highest = Math.max(...over.map((node) => node.pressure.highest));
  return [
    {
      key: "pressure",
      tone: "bad",
      title: `${counted(over.length, "node")} over pressure`,
      reason: `Load and reservations exceed the effective capacity; the fullest is at ${percent(highest)}.`,
      link: linkTo(["nodes"], { sort: "-pressure" }),
    },
  ];
}

/** @param {any[]} nodes @returns {Concern[]} */
function ofAvoided(nodes) {
  const avoided = nodes.filter((node) => node.ineligible_reason === "avoided");
  return named("avoided", avoided, "refused or failed creations lately, and chosen only when nothing else fits.");
}

/** @param {any[]} nodes @returns {Concern[]} */
function ofCordoned(nodes) {
  const cordoned = nodes.filter((node) => node.cordoned);
  return named("cordoned", cordoned, "chosen for nothing new until uncordoned, or until another process reports.");
}

/** @param {string} what @param {any[]} nodes @param {string} why @returns {Concern[]} */
function named(what, nodes, why) {
  if (!nodes.length) return [];
  const ids = nodes.slice(0, NAMED).map((node) => node.node_id);
  return [
    {
      key: what,
      tone: "watch",
      title: `${counted(nodes.length, "node")} ${what}`,
      reason: `${ids.join(", ")}${nodes.length > NAMED ? " …" : ""}: ${why}`,
      link: nodes.length === 1 ? linkTo(["nodes", ids[0]]) : undefined,
    },
  ];
}

/** @param {[string, unknown][]} refused */
function commonest(refused) {
  return refused.reduce((most, each) => (Number(each[1]) > Number(most[1]) ? each : most))[0];
}

/** For how long the oldest reservation has been pending; null when none is. @param {any} summary */
export function pendingForMs({ oldest_pending_ms: sinceMs, now_ms: nowMs }) {
  return sinceMs === null ? null : nowMs - sinceMs;
}

/** @param {any} summary @returns {Concern[]} */
function ofRequests(summary) {
  /** @type {Concern[]} */
  const found = [];
  const refused = Object.entries(summary.rates.refused).filter(([, perSecond]) => Number(perSecond) > 0);
  if (refused.length)
    found.push({
      key: "refused",
      tone: "bad",
      title: `Refusing ${rate(refused.reduce((sum, [, each]) => sum + Number(each), 0))}`,
      reason: refused.map(([reason, each]) => `${saidReason(reason)}: ${rate(Number(each))}`).join("; "),
      link: linkTo(["decisions"], { reason: commonest(refused) }),
    });
  const oldestMs = pendingForMs(summary) ?? 0;
  if (oldestMs > OLD_PENDING_MS)
    found.push({
      key: "oldest",
      tone: "watch",
      title: `A reservation is pending for ${duration(oldestMs)}`,
      reason: "Its caller has neither confirmed nor cancelled it; it holds capacity until its deadline.",
      link: linkTo(["reservations"], { state: "pending" }),
    });
  if (summary.longest_wait_ms > LONG_WAIT_MS)
    found.push({
      key: "waiting",
      tone: "watch",
      title: `A request waits for ${duration(summary.longest_wait_ms)}`,
      reason: "Nothing that fits it has become free.",
    });
  return found;
}
