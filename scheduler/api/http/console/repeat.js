// Reading again and again, one at a time, while the tab is seen.

export class Repeat {
  /** @param {(signal: AbortSignal) => Promise<void>} work never rejects, but when the signal aborts it */
  constructor(work) {
    this.pauseMs = 5000; // Infinity: only when asked
    this.work = work;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {AbortController | undefined} */
    this.running = undefined;
    this.lastMs = -Infinity;
    this.seen = () => (document.hidden ? this.stop() : this.#after(this.lastMs + this.pauseMs - performance.now()));
    document.addEventListener("visibilitychange", this.seen);
  }

  /** Work at once; what is under way is given up. */
  async now() {
    this.stop();
    const running = (this.running = new AbortController());
    try {
      await this.work(running.signal);
    } catch (error) {
      if (!running.signal.aborted) throw error;
    }
    if (this.running !== running) return;
    this.running = undefined;
    this.lastMs = performance.now();
    this.#after(this.pauseMs);
  }

  /** @param {number} ms */
  #after(ms) {
    clearTimeout(this.timer);
    if (!document.hidden && Number.isFinite(ms)) this.timer = setTimeout(() => this.now(), Math.max(0, ms));
  }

  stop() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = undefined;
  }
}
