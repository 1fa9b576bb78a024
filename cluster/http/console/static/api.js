// Client of the broker's HTTP API: JSON responses, errors with the broker's own message, and missing responses.

const ANSWER_MS = 15_000;
const LOGIN = "/login";
const UNAUTHENTICATED = 401;

/** An HTTP error status from the broker; `message` is the broker's error message. */
export class Refusal extends Error {
  constructor(sentence, code, status) {
    super(sentence);
    Object.assign(this, { code, status });
  }
}

/** No response or an incomplete one: connection failure, timeout or early close. */
export class Silence extends Error {}

/** Return the path below /v1 for `names`. Names may contain any character; each is percent-encoded. */
export function at(...names) {
  return `/v1/${names.map(encodeURIComponent).join("/")}`;
}

/** Show the login page, which returns to the view that is open now. */
export function toLogin() {
  location.assign(`${LOGIN}${location.hash}`);
}

export const get = (path, answerMs) => ask("GET", path, undefined, answerMs);
export const post = (path, content) => ask("POST", path, content);
export const patchJson = (path, content) => ask("PATCH", path, content);
export const remove = (path) => ask("DELETE", path);

/** Return a successful response whose body the caller reads as a stream. Throw Refusal or Silence. */
export async function open(path, { headers = {}, signal } = {}) {
  return answered(fetch(path, { headers, signal, cache: "no-store" }));
}

/** Send a request and return the JSON of its response. Throw Refusal or Silence. */
async function ask(method, path, content, answerMs = ANSWER_MS) {
  const body = content === undefined ? undefined : JSON.stringify(content);
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const token = document.body.dataset.csrf;
  if (token && method !== "GET") headers["X-CSRF-Token"] = token;
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
  if (response.status === UNAUTHENTICATED && location.pathname !== LOGIN) toLogin();
  const said = await response.json().catch(() => ({}));
  throw new Refusal(said.error ?? `The broker answered with HTTP status ${response.status}.`, said.code, response.status);
}
