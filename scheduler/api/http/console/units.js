// Numbers and instants as text, with their units.

const GIB = 2 ** 30;
const UNITS = [
  ["TiB", 2 ** 40],
  ["GiB", GIB],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
];

/** @param {number | null | undefined} number */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

/** @param {number} number @param {string} one @param {string} [many] */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of UNITS) {
    const scaled = value / Number(size);
    if (scaled >= 1) return `${scaled >= 100 ? Math.round(scaled).toLocaleString("en") : +scaled.toFixed(1)} ${unit}`;
  }
  return `${value} B`;
}

/** What a limit is held to, in its unit. @param {string} limit @param {number} value */
export function figure(limit, value) {
  return limit === "disk" || limit.includes("memory_bytes") ? bytes(value) : count(value);
}

/** A part of 1 as percent. @param {number | null | undefined} part */
export function percent(part) {
  if (part === null || part === undefined) return "unknown";
  return `${part > 0 && part < 0.1 ? +(part * 100).toFixed(1) : Math.round(part * 100)} %`;
}

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  return `${perSecond >= 10 ? Math.round(perSecond).toLocaleString("en") : +perSecond.toFixed(2)}/s`;
}

/** @param {number} ms */
export function duration(ms) {
  const seconds = Math.round(Math.abs(ms) / 1000);
  if (Math.abs(ms) < 1000) return `${Math.round(Math.abs(ms))} ms`;
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** How long ago, or how far ahead. @param {number} instantMs @param {number} nowMs */
export function relative(instantMs, nowMs) {
  const ms = nowMs - instantMs;
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `${duration(ms)} ago` : `in ${duration(ms)}`;
}

/** The instant, for who hovers over a relative time. @param {number} instantMs */
export function instant(instantMs) {
  return `${new Date(instantMs).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}
