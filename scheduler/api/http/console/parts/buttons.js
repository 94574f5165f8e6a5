import { make } from "../element.js";
import { confirm } from "./dialog.js";

/**
 * One button per act; each asks first. An act that takes another back stands in its place, so the focus stays there.
 * @param {import("./dialog.js").Act[]} acts @param {() => void} afterwards
 */
export function actButtons(acts, afterwards) {
  return make(
    "div",
    { class: "buttons", role: "group", "aria-label": "Acts" },
    acts.map((act) =>
      make("button", { type: "button", onclick: () => confirm(act, afterwards) }, `${act.button} …`),
    ),
  );
}
