// Work done again and again: no oftener than wanted, taking a tenth of the time at most, and not while nobody looks.

const SHARE = 10;
const WAIT_MAX_MS = 10_000;
const RETRY_MS = 500;
const RETRY_MAX_MS = 2_000;

/** `work` is an async function that says whether it went well; if not, it is tried again after longer and longer waits.
 * Returns a function that has it done at once. */
export function repeat(work, intervalMs) {
  let timer;
  let isRunning = false;
  let failures = 0;

  async function turn() {
    clearTimeout(timer);
    if (isRunning) return;
    isRunning = true;
    const begun = performance.now();
    try {
      failures = (await work()) ? 0 : failures + 1;
    } finally {
      isRunning = false;
      timer = setTimeout(turnIfSeen, waitMs(performance.now() - begun));
    }
  }

  function waitMs(tookMs) {
    if (failures > 0) return Math.min(RETRY_MS * failures, RETRY_MAX_MS);
    return Math.max(intervalMs, Math.min(tookMs * SHARE, WAIT_MAX_MS));
  }

  function turnIfSeen() {
    if (!document.hidden) turn();
  }

  document.addEventListener("visibilitychange", turnIfSeen);
  turn();
  return turn;
}
