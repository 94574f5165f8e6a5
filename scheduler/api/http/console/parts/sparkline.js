import { make } from "../element.js";

/**
 * The last five minutes as a line, newest at the right; what it says stands in its label too.
 * @param {string} what @param {[number, number][]} points age as a part of five minutes, value @param {(value: number) => string} say
 */
export function sparkline(what, points, say) {
  const values = points.map(([, value]) => value);
  const most = Math.max(...values, 0),
    least = Math.min(...values, most);
  const label =
    values.length < 2
      ? `${what}: not yet known`
      : `${what} in the last five minutes: from ${say(least)} to ${say(most)}`;
  const at = points.map(([age, value]) => `${round(100 - age * 100)},${round(19 - (most ? value / most : 0) * 18)}`);
  return make(
    "svg",
    { class: "sparkline", viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": label },
    make("line", { x1: 0, y1: 19.5, x2: 100, y2: 19.5, class: "ground" }),
    values.length < 2 ? null : make("polyline", { points: at.join(" ") }),
  );
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}
