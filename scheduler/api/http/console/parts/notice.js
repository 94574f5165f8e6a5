import { make } from "../element.js";
import { Problem } from "../scheduler.js";

/** What went wrong, and what to do. @param {unknown} error */
export function problemNotice(error) {
  const known = error instanceof Problem;
  return make(
    "div",
    { class: "notice bad", role: "alert", key: "problem" },
    make(
      "strong",
      {},
      make("span", { "aria-hidden": "true" }, "✕ "),
      known ? sentence(error.content.title ?? error.code) : "This page failed",
    ),
    make("p", {}, error instanceof Error ? sentence(error.message) : String(error)),
    known && error.content.errors ? make("ul", {}, error.content.errors.map(fieldError)) : null,
    known && error.advice ? make("p", { class: "soft" }, error.advice) : null,
  );
}

/** @param {{ field: string, found: any, allowed: string }} error */
function fieldError({ field, found, allowed }) {
  return make("li", {}, make("code", {}, field), `: found ${JSON.stringify(found)}; must be ${allowed}`);
}

/** @param {string} text */
function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** An empty state: what would be there. @param {string} text */
export function empty(text) {
  return make("p", { class: "empty" }, text);
}
