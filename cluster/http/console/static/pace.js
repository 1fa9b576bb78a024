// Repeating timer for polls: a minimum interval, a longer wait after a slow run, and a pause while the page is hidden.

const SHARE = 10;
const WAIT_MAX_MS = 10_000;
const RETRY_MS = 500;
const RETRY_MAX_MS = 2_000;

/** Run `work` repeatedly. `work` is an async function that returns true on success; after failures it is retried with a
 * growing delay. Return a function that runs `work` immediately, unless it is already running; its `stop` ends it all. */
export function repeat(work, intervalMs) {
  let timer;
  let isRunning = false;
  let isStopped = false;
  let failures = 0;

  async function turn() {
    clearTimeout(timer);
    if (isRunning || isStopped) return;
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

  turn.stop = () => {
    isStopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", turnIfSeen);
  };
  document.addEventListener("visibilitychange", turnIfSeen);
  turn();
  return turn;
}
