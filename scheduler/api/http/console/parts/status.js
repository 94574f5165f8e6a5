import { make } from "../element.js";
import { saidReason, saidState } from "../words.js";

/** A state: its sign and its word. @param {string} state */
export function status(state) {
  const { word, sign, tone, means } = saidState(state);
  return make(
    "span",
    { class: `status ${tone}`, title: means || null },
    make("span", { "aria-hidden": "true" }, sign),
    ` ${word}`,
  );
}

/** A node's state, and why it may not be chosen. @param {{ status: string, cordoned?: boolean, ineligible_reason?: string | null }} node */
export function nodeStatus(node) {
  const reason = node.cordoned ? "cordoned" : node.ineligible_reason;
  const isSaid = !reason || reason === node.status || (reason === "not_ready" && node.status === "connecting");
  return [status(node.status), isSaid ? null : make("span", { class: "soft" }, ` ${saidReason(reason)}`)];
}
