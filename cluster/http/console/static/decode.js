// Decoders of record keys and values from bytes to readable text. Pure functions.

export const WAYS = [
  ["auto", "as it looks best"],
  ["text", "text (UTF-8)"],
  ["json", "JSON"],
  ["hex", "hex"],
];

const HEX_BYTES_PER_LINE = 16;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Return the bytes that a base64 string encodes; null for null or undefined. */
export function bytesIn(base64) {
  return base64 === null || base64 === undefined
    ? null
    : Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Encode a text as UTF-8 and then as base64. */
export function base64Of(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** Return {text, how, line}: `how` is the encoding used, which is hex for bytes that are not printable UTF-8; `line` is
 * the compact form. */
export function decoded(bytes, way) {
  const text = way === "hex" ? null : textOf(bytes);
  if (text === null) return { text: hexOf(bytes), how: "hex", line: hexOf(bytes) };
  if (way !== "text") {
    const json = prettyOf(text, way === "json");
    if (json !== null) return { text: json, how: "json", line: text };
  }
  return { text, how: "text", line: text };
}

/** Return the text on one line, truncated to `charactersMax`, for a table row. */
export function firstOf(text, charactersMax) {
  const line = text.replace(/\s+/g, " ");
  return line.length > charactersMax ? `${line.slice(0, charactersMax)}…` : line;
}

function textOf(bytes) {
  try {
    const text = utf8.decode(bytes);
    // Control characters mean binary data.
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** Return indented JSON, or null. A JSON scalar counts only if `isWanted`, because indentation does not change it. */
function prettyOf(text, isWanted) {
  try {
    const content = JSON.parse(text);
    return isWanted || (typeof content === "object" && content !== null) ? indented(text) : null;
  } catch {
    return null;
  }
}

/** Indent JSON token by token. Serializing the parsed value instead would lose digits of large numbers. */
function indented(json) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const out = [];
  for (const token of json.match(/"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEnd = token === "}" || token === "]";
    const isAfterBegin = /[{[]$/.test(out.at(-1) ?? "");
    if (isEnd) depth -= 1;
    if (depth >= 0 && out.length > 0 && ((isEnd && !isAfterBegin) || (!isEnd && isAfterBegin) || out.at(-1) === ","))
      out.push(line());
    out.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
  }
  return out.join("");
}

function hexOf(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += HEX_BYTES_PER_LINE) {
    lines.push(
      Array.from(bytes.subarray(at, at + HEX_BYTES_PER_LINE), (byte) => byte.toString(16).padStart(2, "0")).join(" "),
    );
  }
  return lines.join("\n");
}
