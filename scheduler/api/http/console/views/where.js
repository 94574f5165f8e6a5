import { linkTo } from "../address.js";
import { make } from "../element.js";
import { facts, nodeLink } from "../parts/facts.js";
import { addressForm } from "../parts/form.js";
import { Problem, read, segment } from "../scheduler.js";

/** “Where is?”: the node a sandbox is on. */
export const where = {
  title: "Where is?",
  everyMs: 0,

  /** @param {import("../address.js").Address} address @param {AbortSignal} signal */
  async load({ query }, signal) {
    const sandboxId = query.get("sandbox");
    if (!sandboxId) return null;
    try {
      return { sandboxId, found: await read(`v1/bindings/${segment(sandboxId)}`, {}, signal) };
    } catch (problem) {
      if (problem instanceof Problem && problem.status === 404) return { sandboxId, found: null };
      throw problem;
    }
  },

  /** @param {any} content @param {{ address: import("../address.js").Address }} context */
  show(content, { address: { query } }) {
    return [
      make("p", { class: "soft" }, "What a gateway that looks this sandbox up is answered now."),
      addressForm({
        name: "Where is a sandbox?",
        button: "Look up",
        link: (given) => linkTo(["where"], given),
        fields: [{ name: "sandbox", label: "Sandbox", value: query.get("sandbox"), required: true }],
      }),
      content
        ? make(
            "div",
            { role: "status" },
            content.found
              ? [
                  make(
                    "p",
                    { class: "lead" },
                    make("code", {}, content.sandboxId),
                    " is on ",
                    nodeLink(content.found.node.node_id),
                    ".",
                  ),
                  facts([["Endpoint", make("code", {}, content.found.node.endpoint)]]),
                ]
              : [
                  make(
                    "p",
                    { class: "lead" },
                    make("code", {}, content.sandboxId),
                    " is on no node that the ledger knows of.",
                  ),
                  make(
                    "p",
                    { class: "soft" },
                    "It has ended, it was never confirmed, or no report has listed it for longer than binding_ttl.",
                  ),
                ],
          )
        : null,
    ];
  },
};
