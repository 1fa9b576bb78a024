// Repeated requests of a view for one resource.

import { Refusal, Silence, get } from "./api.js";
import { repeat } from "./pace.js";

const INTERVAL_MS = 2_000;

/** Request `path()` again and again, and redraw after each answer. */
export function polled(redraw, path) {
  const state = { found: null, mistake: null };
  const turn = repeat(async () => {
    try {
      state.found = await get(path());
      state.mistake = null;
      return true;
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
      state.mistake = error.message;
      return false;
    } finally {
      redraw();
    }
  }, INTERVAL_MS);
  return Object.assign(state, { stop: turn.stop, again: turn });
}
