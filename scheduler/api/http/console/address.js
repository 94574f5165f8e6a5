// The address of a view: the part after `#`. Whatever is shown can be linked to, reloaded and gone back from.

/** @typedef {{ path: string[], query: URLSearchParams }} Address */

/** @returns {Address} */
export function currentAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The link to a view. Empty members of the query are left out.
 * @param {string[]} path @param {Record<string, string | number | null | undefined>} [query]
 */
export function linkTo(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** @param {string} link */
export function goTo(link) {
  if (location.hash === link) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = link;
}
