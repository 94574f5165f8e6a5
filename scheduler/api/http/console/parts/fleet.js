import { goTo, linkTo } from "../address.js";
import { make } from "../element.js";
import { count, percent } from "../units.js";
import { saidReason, saidState } from "../words.js";
import { status } from "./status.js";

/**
 * The fleet as one picture: a cell per node, filled as high as its pressure. Cells shrink with the fleet, so that some
 * thousands of nodes fit one look; below six pixels a cell says its pressure by strength instead of height.
 */

const LARGEST = 28,
  LEAST = 4,
  HIGH = 300;
const ORDER = ["unhealthy", "lingering", "connecting", "ready"];
const BANDS = [
  ["over 100 %", 1, Infinity],
  ["90–100 %", 0.9, 1],
  ["75–90 %", 0.75, 0.9],
  ["50–75 %", 0.5, 0.75],
  ["25–50 %", 0.25, 0.5],
  ["up to 25 %", -1, 0.25],
];

/** The cell that mouse or keyboard is at, by node id. @type {string | null} */
let pointed = null;

/** @param {any[]} nodes */
export function fleetPicture(nodes) {
  const cells = [...nodes].sort(byStateAndPressure);
  const canvas = make("canvas", {
    key: "fleet",
    class: "fleet",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "fleet picture",
    "aria-label": `${count(nodes.length)} nodes, fullest first within each state. Arrow keys move, Enter opens a node.`,
    "aria-describedby": "fleet-pointed",
    ondraw: (event) => draw(event.currentTarget, cells),
    onkeydown: (event) => move(event, cells),
    onpointermove: (event) => pointAt(event.currentTarget, cells, cellAt(event, cells)),
    onclick: (event) => open(cellAt(event, cells)),
  });
  return make(
    "section",
    { "aria-labelledby": "fleet-title", key: "fleet section" },
    make("h2", { id: "fleet-title" }, "Fleet"),
    canvas,
    make(
      "p",
      { id: "fleet-pointed", class: "soft", role: "status" },
      said(cells.find((node) => node.node_id === pointed)),
    ),
    make("div", { class: "legends" }, legend("States", states(nodes)), legend("Pressure", pressures(nodes))),
  );
}

/** @param {any} one @param {any} other */
function byStateAndPressure(one, other) {
  return (
    ORDER.indexOf(one.status) - ORDER.indexOf(other.status) ||
    (other.pressure.highest ?? -1) - (one.pressure.highest ?? -1) ||
    (one.node_id < other.node_id ? -1 : 1)
  );
}

/** @param {string} title @param {any[]} entries */
function legend(title, entries) {
  return make(
    "dl",
    { class: "legend" },
    make("div", { class: "title" }, make("dt", {}, title), make("dd", {}, "nodes")),
    entries,
  );
}

/** @param {any[]} nodes */
function states(nodes) {
  return ORDER.map((state) => [state, nodes.filter((node) => node.status === state).length])
    .filter(([, many]) => many)
    .map(([state, many]) =>
      make(
        "div",
        {},
        make("dt", {}, make("a", { href: linkTo(["nodes"], { status: String(state) }) }, status(String(state)))),
        make("dd", {}, count(Number(many))),
      ),
    );
}

/** @param {any[]} nodes */
function pressures(nodes) {
  const known = nodes.filter((node) => node.pressure.highest !== null);
  const bands = BANDS.map(([name, above, most]) => [
    name,
    known.filter(({ pressure }) => pressure.highest > above && pressure.highest <= most).length,
  ]);
  return [...bands, ["unknown", nodes.length - known.length]]
    .filter(([, many]) => many)
    .map(([name, many]) => make("div", {}, make("dt", {}, name), make("dd", {}, count(Number(many)))));
}

/** @param {number} nodes @param {number} width */
function gridOf(nodes, width) {
  let cell = LARGEST;
  while (cell > LEAST && Math.ceil(nodes / Math.max(1, Math.floor(width / cell))) * cell > HIGH) cell -= 1;
  const columns = Math.max(1, Math.floor(width / cell));
  return { cell, columns, rows: Math.ceil(nodes / columns) };
}

/** @param {HTMLCanvasElement} canvas @param {any[]} cells */
function draw(canvas, cells) {
  const width = canvas.parentElement?.clientWidth ?? canvas.clientWidth;
  const { cell, columns, rows } = gridOf(cells.length, width);
  const scale = window.devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(Math.max(cell, rows * cell) * scale);
  canvas.style.height = `${Math.max(cell, rows * cell)}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const colors = coloursOf(canvas);
  pen.scale(scale, scale);
  cells.forEach((node, at) =>
    drawCell(pen, colors, node, { x: (at % columns) * cell, y: Math.floor(at / columns) * cell, size: cell - 1 }),
  );
}

/** @param {Element} element @returns {Record<string, string>} */
function coloursOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(
    ["track", "allocated", "tight", "over", "bad", "watch", "text"].map((name) => [
      name,
      style.getPropertyValue(`--${name}`).trim(),
    ]),
  );
}

/** @param {CanvasRenderingContext2D} pen @param {Record<string, string>} colors @param {any} node @param {{ x: number, y: number, size: number }} place */
function drawCell(pen, colors, node, { x, y, size }) {
  const pressure = node.pressure.highest ?? 0;
  pen.fillStyle = colors.track;
  pen.fillRect(x, y, size, size);
  pen.fillStyle = pressure > 1 ? colors.over : pressure > 0.9 ? colors.tight : colors.allocated;
  if (size < 6) {
    pen.globalAlpha = Math.max(0.08, Math.min(1, pressure));
    pen.fillRect(x, y, size, size);
    pen.globalAlpha = 1;
  } else {
    const high = Math.min(1, pressure) * size;
    pen.fillRect(x, y + size - high, size, high);
  }
  drawSign(pen, colors, node.status, { x, y, size });
  if (node.node_id !== pointed) return;
  pen.strokeStyle = colors.text;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, size, size);
}

/** Unhealthy is crossed out, draining struck through, connecting dotted. */
function drawSign(
  /** @type {CanvasRenderingContext2D} */ pen,
  /** @type {Record<string, string>} */ colors,
  /** @type {string} */ state,
  /** @type {{ x: number, y: number, size: number }} */ { x, y, size },
) {
  if (state === "ready") return;
  pen.strokeStyle = pen.fillStyle = state === "unhealthy" ? colors.bad : colors.watch;
  pen.lineWidth = Math.max(1, size / 8);
  pen.beginPath();
  if (state === "connecting") {
    const dot = Math.max(2, size / 3);
    pen.fillRect(x + (size - dot) / 2, y + (size - dot) / 2, dot, dot);
    return;
  }
  pen.moveTo(x + 1, y + size - 1);
  pen.lineTo(x + size - 1, y + 1);
  if (state === "unhealthy") {
    pen.moveTo(x + 1, y + 1);
    pen.lineTo(x + size - 1, y + size - 1);
  }
  pen.stroke();
}

/** @param {MouseEvent} event @param {any[]} cells */
function cellAt(event, cells) {
  const { cell, columns } = gridOf(cells.length, /** @type {HTMLElement} */ (event.currentTarget).clientWidth);
  const column = Math.floor(event.offsetX / cell);
  return column < columns ? cells[Math.floor(event.offsetY / cell) * columns + column] : undefined;
}

/** @param {KeyboardEvent} event @param {any[]} cells */
function move(event, cells) {
  const canvas = /** @type {HTMLCanvasElement} */ (event.currentTarget);
  const { columns } = gridOf(cells.length, canvas.clientWidth);
  const at = cells.findIndex((node) => node.node_id === pointed);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity };
  const step = steps[/** @type {keyof typeof steps} */ (event.key)];
  if (event.key === "Enter") open(cells[at]);
  if (step === undefined) return;
  event.preventDefault();
  pointAt(canvas, cells, cells[Math.max(0, Math.min(cells.length - 1, at + step))]);
}

/** @param {HTMLCanvasElement} canvas @param {any[]} cells @param {any} node */
function pointAt(canvas, cells, node) {
  if ((node?.node_id ?? null) === pointed) return;
  pointed = node?.node_id ?? null;
  draw(canvas, cells);
  const told = document.getElementById("fleet-pointed");
  if (told) told.textContent = said(node);
}

/** @param {any} node */
function said(node) {
  if (!node) return "Point at a cell, or move with the arrow keys.";
  const reason =
    node.ineligible_reason && node.ineligible_reason !== node.status ? `, ${saidReason(node.ineligible_reason)}` : "";
  return `${node.node_id}: ${saidState(node.status).word}${reason}, pressure ${percent(node.pressure.highest)}`;
}

/** @param {any} node */
function open(node) {
  if (node) goTo(linkTo(["nodes", node.node_id]));
}
