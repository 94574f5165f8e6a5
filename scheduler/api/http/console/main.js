// The console: one small reading of the summary goes on while the tab is seen; the view that is shown reads for itself.

import { currentAddress } from "./address.js";
import { nowMs } from "./clock.js";
import { make, update } from "./element.js";
import { History } from "./history.js";
import { currentKey, isKept, useKey } from "./key.js";
import { problemNotice } from "./parts/notice.js";
import { Repeat } from "./repeat.js";
import { Problem, read } from "./scheduler.js";
import { audit } from "./views/audit.js";
import { decisions } from "./views/decisions.js";
import { groups } from "./views/groups.js";
import { node } from "./views/node.js";
import { nodes } from "./views/nodes.js";
import { overview, part, sum } from "./views/overview.js";
import { reservation } from "./views/reservation.js";
import { reservations } from "./views/reservations.js";
import { settings } from "./views/settings.js";
import { where } from "./views/where.js";
import { why } from "./views/why.js";

/**
 * @typedef {import("./address.js").Address} Address
 * @typedef {{ address: Address, summary: any, problem: Problem | null, strategy: string, history: History, reload: () => void }} Context
 * @typedef {{ title: string, short?: string, everyMs: number | ((content: any) => number),
 *   load: (address: Address, signal: AbortSignal) => Promise<any>,
 *   show: (content: any, context: any) => import("./element.js").Child[] }} View
 * `everyMs` 0: read once; forms are asked, not watched
 */

/** @type {Record<string, View>} */
const VIEWS = { "": overview, nodes, reservations, groups, decisions, why, where, settings, audit };
/** @type {Record<string, View>} */
const OF_ONE = { nodes: node, reservations: reservation };
const SUMMARY_MS = 2000;

const main = /** @type {HTMLElement} */ (document.getElementById("view"));
const history = new History();
/** @type {{ summary: any, problem: Problem | null }} */
const pulse = { summary: null, problem: null };
/** What is shown. @type {{ address: Address, view: View, content: any, problem: unknown, isRead: boolean }} */
let shown = opened();

const summaryReading = new Repeat(readSummary);
const viewReading = new Repeat(readView);

/** @param {AbortSignal} signal */
async function readSummary(signal) {
  try {
    const summary = (pulse.summary = await read("v1/summary", {}, signal));
    pulse.problem = null;
    history.note(nowMs(), {
      placed: summary.rates.placed,
      refused: sum(summary.rates.refused),
      pending: summary.reservations.pending ?? 0,
      cpu: part(summary, "cpu_count"),
      memory: part(summary, "memory_bytes"),
    });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    pulse.problem = problem;
  }
  summaryReading.pauseMs = pulse.problem?.needsKey ? Infinity : SUMMARY_MS;
  show();
}

/** @param {AbortSignal} signal */
async function readView(signal) {
  const reading = shown;
  try {
    const content = await reading.view.load(reading.address, signal);
    if (reading !== shown) return;
    Object.assign(reading, { content, problem: null, isRead: true });
  } catch (problem) {
    if (signal.aborted) return;
    Object.assign(reading, { problem });
    // A form is shown beside what is wrong with what was asked; what is there no more is shown no more.
    if (reading.view.everyMs === 0) Object.assign(reading, { content: null, isRead: true });
    else if (problem instanceof Problem && problem.status === 404) reading.isRead = false;
  }
  const { everyMs } = reading.view;
  const pauseMs = typeof everyMs === "number" ? everyMs : everyMs(reading.content);
  viewReading.pauseMs = needsKey() ? Infinity : pauseMs || Infinity;
  show();
}

function opened() {
  const address = currentAddress();
  const [name = "", id] = address.path;
  const view = (id === undefined ? VIEWS[name] : OF_ONE[name]) ?? overview;
  return { address, view, content: null, problem: null, isRead: false };
}

function show() {
  const { address, view, content, problem, isRead } = shown;
  const title = address.path[1] ?? view.title;
  document.title = `${title} · agentenv-scheduler`;
  const context = {
    address,
    ...pulse,
    strategy: pulse.summary?.strategy ?? "",
    history,
    reload: () => viewReading.now(),
  };
  const hadFocus = main.contains(document.activeElement);
  main.setAttribute("aria-busy", String(!isRead && !problem));
  update(
    main,
    make("h1", { tabindex: -1 }, address.path[1] ? [`${view.title} `, make("span", { class: "id" }, title)] : title),
    needsKey()
      ? keyForm()
      : [
          // The overview says so among what needs attention.
          problem && !(isRead && view === overview && pulse.problem) ? problemNotice(problem) : null,
          isRead ? view.show(content, context) : problem ? null : make("p", { class: "empty" }, "reading …"),
        ].flat(),
  );
  // What had the focus may be there no more: who works by keyboard goes on from the title.
  if (hadFocus && !main.contains(document.activeElement)) main.querySelector("h1")?.focus();
  showHeader();
}

function needsKey() {
  return [shown.problem, pulse.problem].some((problem) => problem instanceof Problem && problem.needsKey);
}

function showHeader() {
  const [name = ""] = shown.address.path;
  update(
    /** @type {HTMLElement} */ (document.getElementById("nav")),
    make(
      "ul",
      {},
      Object.entries(VIEWS).map(([each, view]) =>
        make("li", {}, make("a", { href: `#/${each}`, "aria-current": each === name ? "page" : null }, view.short ?? view.title)),
      ),
    ),
  );
  const { summary, problem } = pulse;
  const [tone, sign, text] = problem?.needsKey
    ? ["watch", "▲", "needs a key"]
    : problem
      ? ["bad", "✕", "no answer"]
      : summary
        ? ["good", "●", summary.domain]
        : ["quiet", "◌", "reading"];
  update(
    /** @type {HTMLElement} */ (document.getElementById("connection")),
    make(
      "span",
      { class: `status ${tone}`, title: problem?.message ?? "the ledger's domain; it answers" },
      make("span", { "aria-hidden": "true" }, sign),
      ` ${text}`,
    ),
    currentKey()
      ? make("button", { type: "button", class: "quiet", onclick: () => takeKey("", false) }, "Forget the key")
      : null,
  );
}

function keyForm() {
  /** @param {SubmitEvent} event */
  function give(event) {
    event.preventDefault();
    const given = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    takeKey(String(given.get("key")).trim(), given.has("keep"));
  }
  return make(
    "form",
    { class: "form", "aria-label": "API key", key: "key form", onsubmit: give },
    make(
      "p",
      {},
      currentKey()
        ? "This key is not known here."
        : "This scheduler asks for an API key: role gateway reads, role admin also acts.",
    ),
    make(
      "div",
      { class: "field" },
      make("label", { for: "key" }, "API key"),
      make("input", { id: "key", name: "key", type: "password", autocomplete: "off", required: true }),
    ),
    make(
      "div",
      { class: "field check" },
      make("input", { id: "keep", name: "keep", type: "checkbox", checked: isKept() }),
      make("label", { for: "keep" }, "Keep it in this tab until it is closed (else a reload forgets it)"),
    ),
    make("button", {}, "Use it"),
  );
}

/** @param {string} key @param {boolean} keep */
function takeKey(key, keep) {
  useKey(key, keep);
  Object.assign(shown, { problem: null, content: null, isRead: false });
  Object.assign(pulse, { summary: null, problem: null });
  show();
  summaryReading.now();
  viewReading.now();
}

window.addEventListener("hashchange", () => {
  shown = opened();
  main.replaceChildren();
  show();
  main.querySelector("h1")?.focus();
  viewReading.now();
});
window.addEventListener("resize", show);
document.getElementById("skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

show();
summaryReading.now();
viewReading.now();
