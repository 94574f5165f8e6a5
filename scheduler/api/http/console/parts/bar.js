import { make } from "../element.js";
import { bytes, count, percent } from "../units.js";

/**
 * How full something is: what is allocated, what is reserved beyond that, and what is really used, side by side, with
 * the numbers. Told apart by form: allocated is full height, reserved half, used is the line below.
 * @typedef {{ capacity: number | null, allocated: number, reserved: number, used?: number | null, say: (value: number) => string }} Fill
 */

/** @param {string} what @param {Fill} fill */
export function bar(what, { capacity, allocated, reserved, used = null, say }) {
  const text = `${say(allocated)}${reserved ? ` + ${say(reserved)} reserved` : ""} of ${capacity ? say(capacity) : "unknown"}`;
  const usedText = used === null ? "" : ` · ${capacity ? percent(used / capacity) : say(used)} used`;
  return make(
    "span",
    { class: "bar" },
    drawn({ capacity, allocated, reserved, used }),
    make(
      "span",
      { class: "numbers" },
      make("span", { class: "unseen" }, `${what}: `),
      text,
      usedText ? make("span", { class: "soft" }, usedText) : null,
    ),
  );
}

/** @param {{ capacity: number | null, allocated: number, reserved: number, used: number | null }} fill */
function drawn({ capacity, allocated, reserved, used }) {
  const most = Math.max(capacity ?? 0, allocated + reserved);
  const wide = (/** @type {number} */ value) => (most ? Math.round((value / most) * 1000) / 10 : 0);
  return make(
    "svg",
    { viewBox: "0 0 100 12", preserveAspectRatio: "none", class: "fill", "aria-hidden": "true", focusable: "false" },
    make("rect", { class: "track", x: 0, y: 0, width: 100, height: 8 }),
    make("rect", { class: "allocated", x: 0, y: 0, width: wide(allocated), height: 8 }),
    make("rect", { class: "reserved", x: wide(allocated), y: 2, width: wide(reserved), height: 4 }),
    capacity && allocated + reserved > capacity
      ? make("rect", { class: "limit", x: wide(capacity), y: 0, width: 1, height: 8 })
      : null,
    used === null
      ? null
      : make("rect", { class: "used", x: 0, y: 9.5, width: wide(Math.min(used, most)), height: 2.5 }),
  );
}

/** @param {any} node as `GET /v1/nodes` tells it */
export function cpuBar(node) {
  const shot = node.snapshot;
  return bar("CPUs", {
    capacity: shot.cpu_count || null,
    allocated: shot.allocated_cpu + shot.paused_allocated_cpu,
    reserved: node.pending.cpu_count,
    used: shot.cpu_percent ? (shot.cpu_percent * shot.cpu_count) / 100 : null,
    say: count,
  });
}

/** @param {any} node */
export function memoryBar(node) {
  const shot = node.snapshot;
  return bar("Memory", {
    capacity: shot.memory_total_bytes || null,
    allocated: shot.allocated_memory_bytes + shot.paused_allocated_memory_bytes,
    reserved: node.pending.memory_bytes,
    used: shot.memory_used_bytes || null,
    say: bytes,
  });
}

/** Pressure: load, reservations included, as a part of the effective capacity. @param {number | null} value */
export function pressureBar(value) {
  if (value === null) return make("span", { class: "soft" }, "unknown");
  return make(
    "span",
    { class: "bar" },
    make(
      "svg",
      {
        viewBox: "0 0 100 8",
        preserveAspectRatio: "none",
        class: "fill short",
        "aria-hidden": "true",
        focusable: "false",
      },
      make("rect", { class: "track", x: 0, y: 0, width: 100, height: 8 }),
      make("rect", {
        class: value > 1 ? "over" : value > 0.9 ? "tight" : "allocated",
        x: 0,
        y: 0,
        width: Math.min(100, value * 100),
        height: 8,
      }),
    ),
    make("span", { class: "numbers" }, percent(value), value > 1 ? " ▲ over" : null),
  );
}
