// Answers that are read as they come: lines of JSON up to an end, and events that go on and on, over breaks.

import { Refusal, Silence, open } from "./api.js";

const RETRY_MS = 1_000;

/** Each line of JSON. Throws Refusal and Silence, also for what stands in place of the end. */
export async function* lines(path, signal) {
  const response = await open(path, { signal });
  for await (const line of textLines(response, signal)) {
    const content = JSON.parse(line);
    if (content.error !== undefined && content.offset === undefined) throw new Refusal(content.error, content.code);
    yield content;
  }
}

/** Follow the events at `path` until `signal`; `told` is called with {kind, data} for each, and `troubled` with the
 * sentence of whatever is in the way, or null when it goes on. After a break it goes on behind what was seen last. */
export async function follow(path, signal, told, troubled) {
  let seen = null;
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...(seen === null ? {} : { "Last-Event-ID": seen }) };
      const response = await open(path, { headers, signal });
      troubled(null);
      let event = {};
      for await (const line of textLines(response, signal)) {
        const [name, text] = fieldOf(line);
        if (line !== "") event[name] = text;
        else {
          seen = event.id ?? seen;
          if (event.data !== undefined) told({ kind: event.event ?? "record", data: JSON.parse(event.data) });
          event = {};
        }
      }
      throw new Silence("The connection was closed.");
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Silence || error instanceof Refusal)) throw error;
      troubled(error.message);
      // What is wrong with the question is wrong the next time, too.
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

async function* textLines(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      if (signal?.aborted) throw error;
      throw new Silence("The connection was closed.");
    });
    if (done) break;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    yield* whole;
  }
  if (rest !== "") yield rest;
}

function fieldOf(line) {
  const at = line.indexOf(":");
  return [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
}
