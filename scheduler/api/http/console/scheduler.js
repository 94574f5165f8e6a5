// The scheduler's HTTP API, as this page calls it.

import { noteServerDate } from "./clock.js";
import { currentKey } from "./key.js";

const DEADLINE_MS = 10_000;

/** An answer that is no success, or none at all: with what it says and what may help. */
export class Problem extends Error {
  /** @param {{ status: number, code: string, detail: string, [member: string]: any }} content */
  constructor(content) {
    super(content.detail);
    this.status = content.status;
    this.code = content.code;
    this.content = content;
  }

  get needsKey() {
    return this.status === 401;
  }

  /** What a person can do about it. */
  get advice() {
    return ADVICE[this.code] ?? "";
  }
}

/** @type {Record<string, string>} */
const ADVICE = {
  unanswered: "Check that the replica, or the proxy before it, runs and can be reached from here.",
  unauthorized: "Give an API key of role gateway or admin.",
  forbidden: "Use a key of the role that it names.",
  store_unavailable: "The replica cannot reach Redis: see docs/operations.md, “the ledger cannot be reached”.",
  store_unusable: "Redis answers, but does not hold a ledger that this replica can use: see its log.",
  not_rebuilt: "The ledger was lost and is being rebuilt from reports and from what replicas remember. Wait.",
  overloaded: "This replica has more requests than it takes. Try again in a moment.",
  deadline_exceeded: "The answer took too long. Try again; if it stays so, look at Redis' latency.",
  unaskable: "Ask on the command line: agentenv-scheduler nodes show, or sandbox where.",
  not_found: "It may have ended long ago, or never been here.",
};

/** @param {string} path such as `v1/nodes` @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export async function read(path, query = {}, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return await call("GET", text ? `${path}?${text}` : path, undefined, signal);
}

/** @param {"PUT" | "POST" | "DELETE"} method @param {string} path @param {any} [body] @param {AbortSignal} [signal] */
export async function change(method, path, body, signal) {
  return await call(method, path, body, signal);
}

/** One segment of a path. @param {string} id */
export function segment(id) {
  // Whatever the escape, a browser takes these for steps of the path.
  if (id === "." || id === "..") {
    throw new Problem({ status: 0, code: "unaskable", detail: `a browser cannot ask for the id “${id}”` });
  }
  return encodeURIComponent(id);
}

/** @param {string} method @param {string} path @param {any} body @param {AbortSignal} [signal] */
async function call(method, path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (currentKey()) headers["X-API-Key"] = currentKey();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  let answer, content;
  try {
    answer = await fetch(new URL(path, document.baseURI), {
      method,
      headers,
      cache: "no-store",
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    });
    noteServerDate(answer.headers.get("Date"));
    content = await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    const status = answer?.status ?? 0;
    const detail = status ? `HTTP ${status} without the scheduler's own words` : "there was no answer";
    throw new Problem({ status, code: "unanswered", detail });
  }
  if (!answer.ok) throw new Problem({ status: answer.status, code: "unknown", detail: answer.statusText, ...content });
  return content;
}
