// The API's names as a person would say them, each with a sign, so that colour never tells alone.

/** @typedef {"good" | "watch" | "bad" | "quiet"} Tone */
/** @typedef {{ word: string, sign: string, tone: Tone, means: string }} Said */

/** @type {Record<string, Said>} */
const STATES = {
  ready: { word: "ready", sign: "●", tone: "good", means: "reports, and may be chosen" },
  connecting: { word: "connecting", sign: "◌", tone: "watch", means: "has not reported yet, or does not say that it is ready" },
  unhealthy: {
    word: "unhealthy",
    sign: "✕",
    tone: "bad",
    means: "silent for longer than report_ttl, or says so itself",
  },
  lingering: { word: "draining", sign: "◐", tone: "watch", means: "takes no new sandboxes; what runs there goes on" },
  pending: {
    word: "pending",
    sign: "◔",
    tone: "watch",
    means: "promised; nobody has said yet that the sandbox exists",
  },
  confirmed: {
    word: "confirmed",
    sign: "◕",
    tone: "good",
    means: "the sandbox exists; the node's report does not show it yet",
  },
  settled: { word: "settled", sign: "●", tone: "good", means: "the node's own report accounts for it" },
  cancelled: { word: "cancelled", sign: "⊘", tone: "quiet", means: "given back by its caller" },
  expired: { word: "expired", sign: "✕", tone: "bad", means: "nobody confirmed it in time" },
  placed: { word: "placed", sign: "●", tone: "good", means: "a node was chosen" },
  replayed: { word: "replayed", sign: "↺", tone: "quiet", means: "the answer of an earlier call with the same key" },
  refused: { word: "refused", sign: "✕", tone: "bad", means: "no node could take it" },
};

/** @param {string} state @returns {Said} */
export function saidState(state) {
  return STATES[state] ?? { word: state, sign: "•", tone: "quiet", means: "" };
}

/** @type {Record<string, string>} */
export const REASONS = {
  insufficient_cpu: "not enough CPUs free",
  insufficient_memory: "not enough memory free",
  insufficient_capacity: "not enough CPUs or memory free",
  over_limit: "over a limit of node_resource_limit",
  unhealthy: "silent, or says it is unhealthy",
  not_ready: "has not said that it is ready",
  lingering: "draining",
  cordoned: "cordoned",
  excluded: "excluded by the request",
  too_large: "larger than any node could ever hold",
  avoided: "refused creations lately, and is avoided for a while",
  label: "lacks a label that the request requires",
  spread: "would break the request's spread",
  scarce: "kept for work that needs what is scarce there",
};

/** @param {string | null | undefined} reason */
export function saidReason(reason) {
  if (!reason) return "";
  const resource = /^insufficient_(.+)$/.exec(reason);
  return REASONS[reason] ?? (resource ? `not enough ${resource[1]} free` : reason.replaceAll("_", " "));
}
