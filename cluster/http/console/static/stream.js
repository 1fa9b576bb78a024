// Streamed responses of the HTTP API: finite JSON lines, and server-sent events with automatic reconnection.

import { Refusal, Silence, open } from "./api.js";

const RETRY_MS = 1_000;

/** Yield each JSON line. Throw Refusal or Silence, also for an error line or a closed connection inside the stream. */
export async function* lines(path, signal) {
  const response = await open(path, { signal });
  for await (const line of textLines(response, signal)) {
    const content = JSON.parse(line);
    if (content.error !== undefined && content.offset === undefined) throw new Refusal(content.error, content.code);
    yield content;
  }
}

/** Follow the events at `path` until `signal` aborts. Call `received` with {kind, data} for each event, and `troubled` with
 * the message of a failure, or null once connected. A reconnection resumes after the last event received. */
export async function follow(path, signal, received, troubled) {
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
          if (event.data !== undefined) received({ kind: event.event ?? "record", data: JSON.parse(event.data) });
          event = {};
        }
      }
      throw new Silence("The connection was closed.");
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Silence || error instanceof Refusal)) throw error;
      troubled(error.message);
      // A client error other than 429 is permanent: do not retry.
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
