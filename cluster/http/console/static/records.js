// Record browser of a topic: reads by offset, time or key, and a live tail.

import { Refusal, Silence, at, get } from "./api.js";
import { WAYS, base64Of, bytesIn, decoded, firstOf } from "./decode.js";
import { choice, field } from "./dialogs.js";
import { h } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { follow, lines } from "./stream.js";
import { table } from "./parts.js";

const LIMIT = 50;
const SHOWN_MAX = 200;
const BYTES_MAX = 4_000_000;
const PARTITIONS_AT_ONCE_MAX = 64;
const SEARCHED_FOR_KEY = 10_000;
const DRAWN_EVERY_MS = 250;
const LINE_CHARACTERS = 110;
const FROM = [
  ["newest", "newest"],
  ["earliest", "earliest"],
  ["offset", "an offset"],
  ["time", "a time"],
];
const ISOLATIONS = [
  ["read_committed", "committed"],
  ["read_uncommitted", "also open and aborted"],
];

export function recordsOf(redraw, topic) {
  const wanted = { from: "newest", exact: "", partition: "", key: "", isolation: "read_committed" };
  let way = "auto";
  let rows = null;
  let sentence = "";
  let mistake = null;
  let next = null;
  let stopping = null;
  let isFollowing = false;

  /** Stop the current read and start `work`. */
  async function begin(work) {
    stop();
    const mine = (stopping = new AbortController());
    rows = [];
    next = mistake = null;
    sentence = "Reading …";
    redraw();
    try {
      await work(mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
      mistake = error.message;
      sentence = "";
    }
    if (stopping !== mine) return;
    // The read is complete: drop its controller, because an abort of a complete read would look like a failure.
    stopping = null;
    isFollowing = false;
    redraw();
  }

  function stop() {
    stopping?.abort();
    stopping = null;
    if (isFollowing) sentence = `Stopped: ${sentence}`;
    isFollowing = false;
  }

  async function look(signal) {
    if (wanted.from === "newest") return newest(signal);
    const from =
      wanted.from === "time"
        ? `@${new Date(wanted.exact).getTime()}`
        : wanted.from === "offset"
          ? wanted.exact
          : "earliest";
    return forward(from, signal);
  }

  async function forward(from, signal) {
    rows = await read({ from, limit: LIMIT }, signal);
    const last = rows.findLast((row) => row.offset !== undefined);
    next = last && wanted.partition !== "" ? last.offset + 1 : null;
    sentence =
      rows.length === 0
        ? "There are no records from this position."
        : `${plural(rows.filter(isRecord).length, "record")}, the oldest first.`;
    if (rows.length >= LIMIT && wanted.partition === "") sentence += " Choose one partition to continue from here.";
  }

  async function newest(signal) {
    const { partitions } = await get(at("topics", topic, "partitions"));
    const looked = partitions.filter(
      ({ partition }) => wanted.partition === "" || String(partition) === wanted.partition,
    );
    const reach = wanted.key === "" ? LIMIT : SEARCHED_FOR_KEY;
    const found = [];
    for (const { partition, log_start: start, high_watermark: end } of looked.slice(0, PARTITIONS_AT_ONCE_MAX)) {
      if (end === null || start === null)
        found.push({ note: `The leader of partition ${partition} does not answer.` });
      else if (end > start) found.push(...(await read({ from: Math.max(start, end - reach), partition }, signal)));
    }
    const notes = found.filter((row) => row.note);
    const records = found.filter((row) => !row.note).sort((a, b) => b.timestamp - a.timestamp || b.offset - a.offset);
    rows = [...notes, ...records.slice(0, LIMIT)];
    sentence = summary(rows.filter(isRecord).length, looked.length);
  }

  function summary(found, partitions) {
    const among =
      wanted.key === "" ? "" : ` with this key among the newest ${count(SEARCHED_FOR_KEY)} of each partition`;
    if (found === 0)
      return wanted.key === ""
        ? "There are no records: produce some, or follow new records."
        : `There is no record${among}: search from the earliest record.`;
    const left =
      partitions > PARTITIONS_AT_ONCE_MAX
        ? ` Only ${PARTITIONS_AT_ONCE_MAX} partitions were read: choose one.`
        : "";
    return `The newest ${plural(Math.min(found, LIMIT), "record")}${among}, the newest first.${left}`;
  }

  async function read(more, signal) {
    const found = [];
    for await (const line of lines(pathOf({ ...more, max_bytes: BYTES_MAX }), signal)) found.push(rowOf(line));
    return found;
  }

  /** Return the path of a read. Keys and values are requested as raw bytes, so that the decoding can change later. */
  function pathOf(more) {
    const query = new URLSearchParams({ key_encoding: "base64", value_encoding: "base64", markers: true });
    query.set("isolation", wanted.isolation);
    if (wanted.partition !== "") query.set("partition", wanted.partition);
    if (wanted.key !== "") query.set("key", base64Of(wanted.key));
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    return `${at("topics", topic, "records")}?${query}`;
  }

  async function tail(signal) {
    isFollowing = true;
    let waiting = [];
    let seen = 0;
    let second = { begun: performance.now(), seen: 0, rate: 0 };
    const drawing = setInterval(() => {
      const elapsed = performance.now() - second.begun;
      if (elapsed >= 1000) second = { begun: performance.now(), seen, rate: ((seen - second.seen) * 1000) / elapsed };
      rows = [...waiting.reverse(), ...rows].slice(0, SHOWN_MAX);
      waiting = [];
      const cut = seen > SHOWN_MAX ? ` These are the newest ${SHOWN_MAX}.` : "";
      sentence = `Following: ${plural(seen, "record")} so far, ${count(second.rate)}/s, the newest first.${cut}`;
      if (!document.hidden) redraw();
    }, DRAWN_EVERY_MS);
    try {
      await follow(
        pathOf({}),
        signal,
        ({ kind, data }) => {
          if (kind === "record" && data.control === undefined) seen += 1;
          waiting.push(rowOf(kind === "gap" ? { gap: data } : data));
          if (waiting.length > SHOWN_MAX) waiting.shift();
        },
        (trouble) => (mistake = trouble),
      );
    } finally {
      clearInterval(drawing);
    }
  }

  function draw(partitions) {
    return h(
      "section",
      { "aria-label": "Records", "data-key": "records" },
      form(partitions),
      mistake && h("p", { class: "error", role: "alert" }, mistake),
      h("p", { class: "faint", role: isFollowing ? null : "status" }, sentence),
      rows !== null &&
        rows.length > 0 &&
        table({ label: "Records", rows, key: keyOf, empty: "", columns: COLUMNS(way) }),
      next !== null &&
        h(
          "p",
          null,
          h("button", { onclick: () => begin((signal) => forward(next, signal)) }, `Continue at ${count(next)}`),
        ),
    );
  }

  function form(partitions) {
    const change = (name) => (value) => {
      wanted[name] = value;
      redraw();
    };
    return h(
      "form",
      { class: "seek", onsubmit: submit, autocomplete: "off" },
      choice("From", FROM, wanted.from, (from) => {
        Object.assign(wanted, { from, exact: "" });
        redraw();
      }),
      wanted.from === "offset" && field("Offset", { type: "number", min: 0, required: true }, change("exact")),
      wanted.from === "time" && field("Time", { type: "datetime-local", step: 1, required: true }, change("exact")),
      choice(
        "Partition",
        [["", "all"], ...partitions.map(({ partition }) => [String(partition), String(partition)])],
        wanted.partition,
        change("partition"),
      ),
      choice("Transactions", ISOLATIONS, wanted.isolation, change("isolation")),
      field("Key", { spellcheck: "false", autocapitalize: "off", placeholder: "any" }, change("key")),
      choice("Show as", WAYS, way, (value) => {
        way = value;
        redraw();
      }),
      h(
        "span",
        { class: "buttons" },
        h("button", { type: "submit", class: "main" }, "Show"),
        stopping === null
          ? h("button", { type: "button", onclick: () => begin(tail) }, "Follow")
          : h(
              "button",
              {
                type: "button",
                onclick: () => {
                  stop();
                  redraw();
                },
              },
              "Stop",
            ),
      ),
    );
  }

  function submit(event) {
    event.preventDefault();
    begin(look);
  }

  begin(look);
  return { draw, stop };
}

/** Return the table row of a line or an event. A row that is not a record has a `note`, or is a transaction's `marker`. */
function rowOf(content) {
  const { gap } = content;
  if (gap !== undefined)
    return {
      partition: gap.partition,
      note: `${plural(gap.to - gap.from, "record")} from ${count(gap.from)} on were deleted.`,
    };
  if (content.error !== undefined) return { note: content.error };
  if (content.control !== undefined) {
    const { control, producer_id: producer, producer_epoch: epoch } = content;
    return { ...content, marker: `${control} marker of producer ${producer}, epoch ${epoch}` };
  }
  return { ...content, key: bytesIn(content.key_base64), value: bytesIn(content.value_base64) };
}

function isRecord(row) {
  return row.note === undefined && row.marker === undefined;
}

function keyOf(row) {
  return `${row.partition} ${row.offset ?? row.note}`;
}

function COLUMNS(way) {
  return [
    { name: "Partition", isNumber: true, of: (row) => row.partition ?? "" },
    { name: "Offset", isNumber: true, isHead: true, of: (row) => (row.note ? "" : count(row.offset)) },
    { name: "Time", class: "roomy", of: (row) => (row.note ? "" : moment(row.timestamp)) },
    { name: "Key", class: "bytes", of: (row) => isRecord(row) && content(row.key, way, "no key") },
    {
      name: "Value",
      class: "bytes value",
      of: (row) =>
        row.note
          ? h("span", { class: "bad" }, `! ${row.note}`)
          : row.marker
            ? h("i", { class: "faint" }, row.marker)
            : content(row.value, way, "no value", row.headers),
    },
  ];
}

function content(bytes, way, nothing, headers = []) {
  const shown = bytes === null ? { text: "", how: "none" } : decoded(bytes, way);
  const line =
    bytes === null
      ? h("i", { class: "faint" }, nothing)
      : h("code", { class: shown.how }, firstOf(shown.line, LINE_CHARACTERS));
  const isWhole = bytes === null || (shown.text.length <= LINE_CHARACTERS && !shown.text.includes("\n"));
  if (isWhole && headers.length === 0) return line;
  return h(
    "details",
    null,
    h("summary", null, line),
    h("p", { class: "faint" }, bytes === null ? nothing : `${plural(bytes.length, "byte")} as ${shown.how}`),
    bytes !== null && h("pre", null, shown.text),
    headers.map((header) =>
      h("p", { class: "header" }, h("b", null, header.name), ` ${header.value ?? header.value_base64 ?? ""}`),
    ),
  );
}
