// The API key. It lives in this page alone, unless its owner asks to keep it in this tab.

const NAME = "agentenv-scheduler-key";
let key = sessionStorage.getItem(NAME) ?? "";

export function currentKey() {
  return key;
}

export function isKept() {
  return sessionStorage.getItem(NAME) !== null;
}

/** @param {string} given @param {boolean} keep whether a reload of this tab shall know it too */
export function useKey(given, keep) {
  key = given;
  if (keep && given) sessionStorage.setItem(NAME, given);
  else sessionStorage.removeItem(NAME);
}
