// The scheduler's time. Instants are its own, and this machine's clock may be wrong.

const TOLERATED_MS = 2000;
let aheadMs = 0;

/** @param {string | null} date the Date header of an answer that has just come */
export function noteServerDate(date) {
  const told = date ? Date.parse(date) + 500 : NaN; // the header counts whole seconds
  if (Number.isNaN(told)) return;
  const difference = told - Date.now();
  aheadMs = Math.abs(difference) > TOLERATED_MS ? difference : 0;
}

export function nowMs() {
  return Date.now() + aheadMs;
}
