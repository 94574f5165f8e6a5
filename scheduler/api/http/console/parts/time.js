import { nowMs } from "../clock.js";
import { make } from "../element.js";
import { instant, relative } from "../units.js";

/** How long ago or ahead an instant is; the instant itself on hover. @param {number | null | undefined} ms @param {string} [never] */
export function when(ms, never = "never") {
  if (ms === null || ms === undefined) return make("span", { class: "soft" }, never);
  return make("time", { datetime: new Date(ms).toISOString(), title: instant(ms) }, relative(ms, nowMs()));
}
