import { actsOnNode } from "../acts.js";
import { linkTo } from "../address.js";
import { make } from "../element.js";
import { bar, cpuBar, memoryBar, pressureBar } from "../parts/bar.js";
import { actButtons } from "../parts/buttons.js";
import { facts, warmKeys } from "../parts/facts.js";
import { nodeStatus } from "../parts/status.js";
import { when } from "../parts/time.js";
import { read, segment } from "../scheduler.js";
import { bytes, count } from "../units.js";
import { reservationTable } from "./reservations.js";

const SHOWN = 50;

/** One node: what it reports, what is promised on it, and what may be done with it. */
export const node = {
  title: "Node",
  everyMs: 3000,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ path }, signal) {
    const [found, reserved, warm] = await Promise.all([
      read(`v1/nodes/${segment(path[1])}`, {}, signal),
      read("v1/reservations", { node_id: path[1], limit: SHOWN }, signal),
      read("v1/warm-keys", { node_id: path[1] }, signal),
    ]);
    return { found, reserved, warm: warm.nodes[0]?.keys ?? [] };
  },

  /** @param {{ found: any, reserved: any, warm: any[] }} content @param {{ reload: () => void }} context */
  show({ found, reserved, warm }, { reload }) {
    const shot = found.snapshot;
    return [
      make("p", { class: "lead" }, nodeStatus(found), found.eligible ? " · may be chosen" : " · is not chosen"),
      actButtons(actsOnNode(found), reload),
      facts([
        ["Pressure", pressureBar(found.pressure.highest)],
        ["CPUs", cpuBar(found)],
        ["Memory", memoryBar(found)],
        ...Object.entries(found.resources ?? {}).map(resource),
        [
          "Sandboxes",
          `${count(shot.sandbox_count)} running, ${count(shot.sandbox_starting_count)} starting, ${count(shot.paused_sandbox_count)} paused, ${count(found.pending.sandbox_count)} reserved`,
        ],
        ["Creates since its start", `${count(shot.create_successes)} succeeded, ${count(shot.create_fails)} failed`],
        ["Last report", when(found.last_seen_ms)],
        ["Endpoint", make("code", {}, found.endpoint)],
        ["Instance", make("code", {}, found.service_instance_id || "none has reported")],
        ["Cluster", found.cluster_id || "–"],
        [
          "Version",
          [found.version || "–", found.commit ? make("span", { class: "soft" }, ` (${found.commit})`) : null],
        ],
        [
          "Machine",
          found.machine_info ? `${found.machine_info.cpu_model_name} · ${found.machine_info.cpu_architecture}` : "–",
        ],
        ...Object.entries(found.labels ?? {}).map(
          ([name, value]) => /** @type {[string, any]} */ ([`Label ${name}`, value]),
        ),
      ]),
      shot.disks.length ? make("section", {}, make("h2", {}, "Disks"), facts(shot.disks.map(disk))) : null,
      warm.length ? make("section", {}, make("h2", {}, "Warm keys, the latest first"), warmKeys(warm)) : null,
      make("h2", {}, "Its reservations"),
      reservationTable(reserved.reservations, "Nothing is reserved on this node, and nothing that ended lately was."),
      reserved.cursor
        ? make(
            "p",
            {},
            make("a", { href: linkTo(["reservations"], { node_id: found.node_id }) }, "All reservations of this node"),
          )
        : null,
    ];
  },
};

/** @param {[string, any]} named @returns {[string, any]} */
function resource([name, { total, allocated, pending }]) {
  const say = name === "disk" ? bytes : count;
  return [name, bar(name, { capacity: total < 0 ? null : total, allocated, reserved: pending, say })];
}

/** @param {any} disk @returns {[string, any]} */
function disk({ mount_point: at, used_bytes: used, total_bytes: total }) {
  return [at, bar(`Disk ${at}`, { capacity: total, allocated: used, reserved: 0, say: bytes })];
}
