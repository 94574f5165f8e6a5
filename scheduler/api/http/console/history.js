// The last five minutes of a few numbers, kept in this page.

const KEPT_MS = 5 * 60_000;

export class History {
  constructor() {
    /** @type {{ atMs: number, values: Record<string, number | null> }[]} */
    this.samples = [];
  }

  /** @param {number} atMs @param {Record<string, number | null>} values */
  note(atMs, values) {
    this.samples.push({ atMs, values });
    while (this.samples[0].atMs < atMs - KEPT_MS) this.samples.shift();
  }

  /** Each sample's age as a part of five minutes, and its value. @param {string} name @returns {[number, number][]} */
  of(name) {
    const last = this.samples.at(-1)?.atMs ?? 0;
    return this.samples.flatMap(({ atMs, values }) => {
      const value = values[name];
      return value === null || value === undefined ? [] : [[(last - atMs) / KEPT_MS, value]];
    });
  }
}
