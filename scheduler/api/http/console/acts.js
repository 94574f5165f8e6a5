// What an operator may change here: each act with its consequence in words. Whether a key may do it, the server says.

import { change, read, segment } from "./scheduler.js";

/** @typedef {import("./parts/dialog.js").Act} Act */

/** @param {any} node @returns {Act[]} */
export function actsOnNode(node) {
  const path = `v1/nodes/${segment(node.node_id)}`;
  const isDraining = node.discovery === "lingering";
  return [
    isDraining
      ? {
          title: `Undrain ${node.node_id}?`,
          consequence: ["It may be chosen for new sandboxes again, as soon as it reports ready."],
          button: "Undrain",
          done: `${node.node_id} takes new sandboxes again.`,
          perform: () => setState(path, "active"),
        }
      : {
          title: `Drain ${node.node_id}?`,
          consequence: [
            "It is chosen for no new sandbox until it is undrained, also after its process restarts. Sandboxes that run there go on.",
            "Where Kubernetes or a configuration lists the node, that list may say otherwise again.",
          ],
          button: "Drain",
          done: `${node.node_id} is draining.`,
          perform: () => setState(path, "lingering"),
        },
    ...(node.service_instance_id ? cordonActs(node, path) : []),
    {
      title: `Remove ${node.node_id} from the list?`,
      consequence: [
        "It is forgotten with its report. Its reservations are given up, and then its bindings: gateways no longer find its sandboxes.",
        "A node that registers itself comes back with its next report; so does one that discovery lists.",
      ],
      button: "Remove",
      done: `${node.node_id} is removed.`,
      perform: () => change("DELETE", `${path}?remove=true`),
    },
  ];
}

/** As it is listed now: a node that was removed or moved meanwhile is not listed again as this page knew it. */
async function setState(/** @type {string} */ path, /** @type {string} */ state) {
  const { endpoint } = await read(path);
  return await change("PUT", path, { endpoint, state });
}

/** @param {any} node @param {string} path @returns {Act[]} */
function cordonActs(node, path) {
  const body = { service_instance_id: node.service_instance_id };
  return [
    node.cordoned
      ? {
          title: `Uncordon ${node.node_id}?`,
          consequence: ["Its running process may be chosen for new sandboxes again."],
          button: "Uncordon",
          done: `${node.node_id} is no longer cordoned.`,
          perform: () => change("POST", `${path}/uncordon`, body),
        }
      : {
          title: `Cordon ${node.node_id}?`,
          consequence: [
            "It is chosen for no new sandbox until it is uncordoned or its process is replaced. Sandboxes that run there go on.",
          ],
          button: "Cordon",
          done: `${node.node_id} is cordoned.`,
          perform: () => change("POST", `${path}/cordon`, body),
        },
  ];
}

/** @param {any} reservation @returns {Act[]} */
export function actsOnReservation(reservation) {
  if (reservation.state !== "pending") return [];
  return [
    {
      title: "Cancel this reservation?",
      consequence: [
        `Its capacity on ${reservation.node_id} is free at once.`,
        "A caller that confirms it afterwards is answered 409: cancel it only when nothing was created for it.",
      ],
      button: "Cancel the reservation",
      done: "The reservation is cancelled.",
      perform: () =>
        change("POST", `v1/reservations/${segment(reservation.reservation_id)}/cancel`, {
          reason: "cancelled in the console",
        }),
    },
  ];
}
