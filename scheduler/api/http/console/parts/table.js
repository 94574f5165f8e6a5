import { linkTo } from "../address.js";
import { make } from "../element.js";
import { empty } from "./notice.js";

/**
 * @typedef {import("../element.js").Child | import("../element.js").Child[]} Cell
 * @typedef {{ title: string, numeric?: boolean, sort?: string, means?: string }} Column
 * @typedef {{ key: string, cells: Cell[] }} Row a row's first cell names it
 */

/**
 * A table that scrolls by itself where the screen is narrow.
 * @param {{ caption: string, columns: Column[], rows: Row[], none: string, sorting?: Sorting }} content
 * `none` says what would be there
 */
export function table({ caption, columns, rows, none, sorting }) {
  if (!rows.length) return empty(none);
  return make(
    "div",
    { class: "wide", role: "region", "aria-label": caption, tabindex: 0, key: caption },
    make(
      "table",
      {},
      make("caption", { class: "unseen" }, caption),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          columns.map((column) => head(column, sorting)),
        ),
      ),
      make(
        "tbody",
        {},
        rows.map(({ key, cells }) =>
          make(
            "tr",
            { key },
            cells.map((cell, at) =>
              make(at ? "td" : "th", { class: columns[at].numeric ? "numeric" : null, scope: at ? null : "row" }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @typedef {{ current: string, link: (sort: string) => string }} Sorting by a name, or by `-name` from the top */

/** @param {Column} column @param {Sorting} [sorting] */
function head({ title, numeric, sort, means }, sorting) {
  const attributes = { scope: "col", class: numeric ? "numeric" : null, title: means };
  if (!sort || !sorting) return make("th", attributes, title);
  const { current, link } = sorting;
  const up = current === sort,
    down = current === `-${sort}`;
  const next = down ? sort : up ? `-${sort}` : numeric ? `-${sort}` : sort;
  return make(
    "th",
    { ...attributes, "aria-sort": up ? "ascending" : down ? "descending" : null },
    make("a", { href: link(next) }, title, make("span", { "aria-hidden": "true" }, up ? " ↑" : down ? " ↓" : "")),
  );
}

/**
 * Links to the first and the next page.
 * @param {string[]} path @param {Record<string, string>} query @param {string | null} cursor
 * @param {string} [name] of the cursor in the address, where a view has two lists
 */
export function pager(path, query, cursor, name = "cursor") {
  if (!query[name] && !cursor) return null;
  return make(
    "nav",
    { class: "pager", "aria-label": name === "cursor" ? "Pages" : `Pages, ${name}`, key: `pager ${name}` },
    query[name] ? make("a", { href: linkTo(path, { ...query, [name]: null }) }, "⇤ first page") : null,
    cursor
      ? make("a", { href: linkTo(path, { ...query, [name]: cursor }) }, "next page →")
      : make("span", { class: "soft" }, "the last page"),
  );
}
