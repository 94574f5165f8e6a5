import { linkTo } from "../address.js";
import { make } from "../element.js";

/** Names and values, side by side. @param {[string, import("../element.js").Child | import("../element.js").Child[]][]} pairs */
export function facts(pairs) {
  return make(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}

/** A link to a node, or a dash. @param {string | null | undefined} nodeId */
export function nodeLink(nodeId) {
  return nodeId ? make("a", { class: "id", href: `#/nodes/${encodeURIComponent(nodeId)}` }, nodeId) : "–";
}

/** @param {string} reservationId */
export function reservationLink(reservationId) {
  return make(
    "a",
    { class: "id", href: `#/reservations/${encodeURIComponent(reservationId)}`, title: reservationId },
    reservationId.length > 14 ? `${reservationId.slice(0, 12)}…` : reservationId,
  );
}

/** What a request asked for. @param {{ cpu_count?: number, memory_bytes?: number }} size @param {(value: number) => string} bytes */
export function size({ cpu_count = 0, memory_bytes = 0 }, bytes) {
  return `${cpu_count ? `${cpu_count} CPU${cpu_count === 1 ? "" : "s"}` : "CPUs not stated"}, ${memory_bytes ? bytes(memory_bytes) : "memory not stated"}`;
}

/** Images and templates that a node was given last; each leads to the others that hold it. @param {{ key: string }[]} keys */
export function warmKeys(keys) {
  return make(
    "ul",
    { class: "keys" },
    keys.map(({ key }) => make("li", { key }, make("a", { class: "id", href: linkTo(["groups"], { key }) }, key))),
  );
}
