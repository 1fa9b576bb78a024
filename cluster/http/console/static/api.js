// The broker's HTTP API: answers as JSON, refusals as the sentences that the broker gives, and silence.

const ANSWER_MS = 15_000;

/** The broker has said no; `message` is its sentence. */
export class Refusal extends Error {
  constructor(sentence, code, status) {
    super(sentence);
    Object.assign(this, { code, status });
  }
}

/** The broker has said nothing. */
export class Silence extends Error {}

/** A path below /v1, with names that may have anything in them. */
export function at(...names) {
  return `/v1/${names.map(encodeURIComponent).join("/")}`;
}

export const get = (path, answerMs) => ask("GET", path, undefined, answerMs);
export const post = (path, content) => ask("POST", path, content);
export const patchJson = (path, content) => ask("PATCH", path, content);
export const remove = (path) => ask("DELETE", path);

/** A response that has begun well, to be read as it comes. Throws Refusal and Silence. */
export async function open(path, { headers = {}, signal } = {}) {
  return answered(fetch(path, { headers, signal, cache: "no-store" }));
}

/** Throws Refusal and Silence. */
async function ask(method, path, content, answerMs = ANSWER_MS) {
  const body = content === undefined ? undefined : JSON.stringify(content);
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const signal = AbortSignal.timeout(answerMs);
  const response = await answered(fetch(path, { method, body, headers, signal, cache: "no-store" }));
  try {
    return await response.json();
  } catch {
    throw new Silence("The connection was closed before the end of the response.");
  }
}

async function answered(asking) {
  let response;
  try {
    response = await asking;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Silence("The broker does not answer.");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refusal(said.error ?? `The broker answered with HTTP status ${response.status}.`, said.code, response.status);
}
