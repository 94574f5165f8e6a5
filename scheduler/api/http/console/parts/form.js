import { goTo } from "../address.js";
import { make } from "../element.js";

/**
 * A form whose answer is a view of its own: what was given becomes the address.
 * @typedef {{ name: string, label: string, type?: string, value?: string | null, options?: [string, string][], [attribute: string]: any }} Field
 * @typedef {{ title: string, fields: Field[] }} Further fields that few need: folded away, unless one is given
 * @param {{ name: string, button: string, fields: Field[], further?: Further, link: (given: Record<string, string>) => string }} content
 */
export function addressForm({ name, button, fields, further, link }) {
  /** @param {SubmitEvent} event */
  function go(event) {
    event.preventDefault();
    const given = [...new FormData(/** @type {HTMLFormElement} */ (event.currentTarget))];
    goTo(link(Object.fromEntries(given.map(([field, value]) => [field, String(value).trim()]))));
  }
  return make(
    "form",
    { class: "form", "aria-label": name, key: `form ${name}`, onsubmit: go },
    fields.map((field) => fieldOf(field)),
    further
      ? make(
          "details",
          { open: further.fields.some(({ value }) => value) },
          make("summary", {}, further.title),
          make(
            "div",
            { class: "fields" },
            further.fields.map((field) => fieldOf(field)),
          ),
        )
      : null,
    make("button", {}, button),
  );
}

/** @param {Field} field */
function fieldOf({ name, label, options, value = "", ...attributes }) {
  const id = `field-${name}`;
  const input = options
    ? make(
        "select",
        { id, name },
        options.map(([each, said]) => make("option", { value: each, selected: each === value }, said)),
      )
    : make("input", { id, name, value, autocomplete: "off", spellcheck: "false", ...attributes });
  return make("div", { class: "field" }, make("label", { for: id }, label), input);
}
