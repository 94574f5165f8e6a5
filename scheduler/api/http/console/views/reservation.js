import { actsOnReservation } from "../acts.js";
import { nowMs } from "../clock.js";
import { make } from "../element.js";
import { actButtons } from "../parts/buttons.js";
import { facts, nodeLink, size } from "../parts/facts.js";
import { status } from "../parts/status.js";
import { when } from "../parts/time.js";
import { read, segment } from "../scheduler.js";
import { bytes } from "../units.js";
import { saidReason, saidState } from "../words.js";

/** One reservation's story. */
export const reservation = {
  title: "Reservation",
  everyMs: 3000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ path }, signal) {
    return await read(`v1/reservations/${segment(path[1])}`, {}, signal);
  },

  /** @param {any} content @param {{ reload: () => void }} context */
  show({ reservation: found, orphaned }, { reload }) {
    const acts = actsOnReservation(found);
    return [
      make(
        "p",
        { class: "lead" },
        status(found.state),
        make("span", { class: "soft" }, ` ${saidState(found.state).means}`),
      ),
      acts.length ? actButtons(acts, reload) : null,
      make("h2", {}, "What happened"),
      make(
        "ol",
        { class: "story" },
        chapters(found, orphaned).map(([atMs, text]) => make("li", {}, when(atMs), make("span", {}, text))),
      ),
      make("h2", {}, "What it holds"),
      facts([
        ["Node", nodeLink(found.node_id)],
        ["Size", size(found, bytes)],
        ["Sandbox", make("code", {}, found.sandbox_id ?? "not told yet")],
        [
          "Who ends it",
          found.lifecycle === "explicit"
            ? "its caller confirms or cancels"
            : "nobody will; the node's reports account for it",
        ],
        ["Group", make("code", {}, found.group_key ?? "none")],
        ["Reservation", make("code", {}, found.reservation_id)],
      ]),
    ];
  },
};

/** @param {any} found @param {boolean} orphaned @returns {[number, any][]} */
function chapters(found, orphaned) {
  const story = [
    [found.created_at_ms, ["Placed on ", nodeLink(found.node_id), "; its capacity is held from then on."]],
  ];
  if (found.confirmed_at_ms !== null)
    story.push([
      found.confirmed_at_ms,
      `Confirmed${found.sandbox_id ? ` as ${found.sandbox_id}` : ""}${orphaned ? ", after it had expired" : ""}.`,
    ]);
  if (found.finished_at_ms !== null) {
    const why = found.reason ? `: ${saidReason(found.reason)}` : "";
    story.push([
      found.finished_at_ms,
      `${saidState(found.state).word.replace(/^./, (first) => first.toUpperCase())}${why}.`,
    ]);
  } else {
    story.push([
      found.expires_at_ms,
      found.expires_at_ms > nowMs()
        ? "Its capacity is given back then, unless it is accounted for before."
        : "Overdue: it is given back with the next call.",
    ]);
  }
  return /** @type {[number, any][]} */ (story.sort(([one], [other]) => Number(one) - Number(other)));
}
