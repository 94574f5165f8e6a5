import { make, update } from "../element.js";
import { problemNotice } from "./notice.js";

/**
 * Asks before something is changed, and says what will happen. A refusal is shown where it was asked for.
 * @typedef {{ title: string, consequence: string[], button: string, perform: () => Promise<any>, done: string }} Act
 * @param {Act} act @param {() => void} afterwards
 */
export function confirm(act, afterwards) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  let isBusy = false;
  /** @param {unknown} [problem] */
  function show(problem) {
    update(
      dialog,
      make(
        "form",
        { method: "dialog", onsubmit: perform },
        make("h2", { id: "dialog-title" }, act.title),
        act.consequence.map((line) => make("p", {}, line)),
        problem ? problemNotice(problem) : null,
        make(
          "div",
          { class: "buttons" },
          make("button", { type: "button", onclick: () => dialog.close() }, "Leave it"),
          make("button", { class: "danger", disabled: isBusy }, act.button),
        ),
      ),
    );
  }
  /** @param {SubmitEvent} event */
  async function perform(event) {
    event.preventDefault();
    isBusy = true;
    show();
    try {
      await act.perform();
    } catch (problem) {
      isBusy = false;
      show(problem);
      return;
    }
    dialog.close();
    tell(act.done);
    afterwards();
  }
  show();
  dialog.showModal();
}

/** Say it to who listens, and show it for a while. @param {string} text */
export function tell(text) {
  const told = /** @type {HTMLElement} */ (document.getElementById("told"));
  // Empty first, so that the same words twice are said and shown twice.
  told.textContent = "";
  requestAnimationFrame(() => (told.textContent = text));
}
