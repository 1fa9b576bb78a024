// Topic views: the filterable list of topics, and one topic with its partitions, records and configs.

import { createTopic, deleteTopic, electPreferred, electUnclean } from "./actions.js";
import { at } from "./api.js";
import { configsOf } from "./configs.js";
import { h } from "./dom.js";
import { UNKNOWN, bytes, count, plural } from "./format.js";
import { live } from "./live.js";
import { byTopic } from "./picture.js";
import { recordsOf } from "./records.js";
import { filterField, headed, table, tick } from "./parts.js";

const ROWS_MAX = 300;
/** Time after opening in which a missing topic counts as loading: this broker may not know a new topic yet. */
const NEW_MS = 3_000;

export function topicsView(redraw) {
  let filter = "";
  return {
    title: "Topics",
    draw: () => {
      const all = [...byTopic(live.partitions)].map(([name, partitions]) => summary(name, partitions));
      const found = all.filter(({ name }) => name.toLowerCase().includes(filter));
      return [
        headed(
          "Topics",
          filterField("Filter topics", (text) => {
            filter = text;
            redraw();
          }),
          tick("internal topics", live.showsInternal, (isWanted) => live.showInternal(isWanted)),
          h(
            "button",
            { class: "main", onclick: () => createTopic((name) => (location.hash = link(name))) },
            "Create a topic",
          ),
        ),
        list(found.slice(0, ROWS_MAX), all.length),
        found.length > ROWS_MAX &&
          h("p", { class: "faint" }, `${count(found.length - ROWS_MAX)} more: filter to find them.`),
      ];
    },
  };
}

/** Show one topic. `part` selects the tab: "" for the partitions, "records" or "configs". */
export function topicView(redraw, name, part = "") {
  const inner = {
    records: () => recordsOf(redraw, name),
    configs: () => configsOf(redraw, at("topics", name, "configs"), name),
  }[part]?.();
  const opened = Date.now();
  return {
    title: name,
    stop: inner?.stop,
    draw: () => {
      const partitions = partitionsOf(name);
      if (partitions.length === 0) return missing(name, Date.now() - opened < NEW_MS);
      return [
        heading(name, partitions),
        tabs(name, part),
        inner ? inner.draw(partitions) : partitionsTable(name, partitions),
      ];
    },
  };
}

/** Return the partitions of a topic with offsets and lag, also of an internal topic that the overview hides. */
function partitionsOf(name) {
  const known = new Map(live.partitions.filter(({ topic }) => topic === name).map((row) => [row.partition, row]));
  const positions = [...live.positions.values()].filter(({ topic }) => topic === name);
  const rows = known.size > 0 ? [...known.values()] : positions;
  return rows.map((row) => {
    const position = live.position(row);
    const lags = new Map(position.replicas.map((replica) => [replica.broker_id, replica]));
    const replicas = row.replicas.map(({ broker_id, is_in_sync, is_alive }) => ({
      ...lags.get(broker_id),
      broker_id,
      is_in_sync,
      is_alive,
    }));
    return { ...position, leader: row.leader, isr: row.isr, is_under_replicated: row.is_under_replicated, replicas };
  });
}

function missing(name, isEarly) {
  return [
    headed(name),
    h(
      "p",
      { class: "empty" },
      isEarly ? "Loading …" : ["The topic does not exist. ", h("a", { href: "#/topics" }, "All topics")],
    ),
  ];
}

function heading(name, partitions) {
  const { replicas, records, size } = summary(name, partitions);
  const leaderless = partitions.filter(({ leader }) => leader === null);
  return [
    headed(
      name,
      leaderless.length > 0 && h("button", { onclick: () => electUnclean(name, leaderless) }, "Elect out-of-sync leaders …"),
      h("button", { onclick: () => electPreferred(name, partitions) }, "Elect preferred leaders"),
      h(
        "button",
        { class: "dangerous", onclick: () => deleteTopic(name, records, () => (location.hash = "#/topics")) },
        "Delete",
      ),
    ),
    h(
      "p",
      { class: "faint" },
      `${plural(partitions.length, "partition")}, ${plural(replicas, "replica")} each; ${
        records === null ? UNKNOWN : plural(records, "record")
      }, ${bytes(size)} in one copy.`,
    ),
  ];
}

function tabs(name, part) {
  const tab = (words, its) =>
    h("a", { href: `${link(name)}${its && `/${its}`}`, "aria-current": its === part && "page" }, words);
  return h(
    "nav",
    { class: "tabs", "aria-label": "Pages of this topic" },
    tab("Partitions", ""),
    tab("Records", "records"),
    tab("Configs", "configs"),
  );
}

function list(rows, total) {
  return table({
    label: "Topics",
    rows,
    key: ({ name }) => name,
    empty:
      total === 0
        ? "There are no topics: create one, or start a producer, which creates it."
        : "No topic matches: change the filter.",
    columns: [
      { name: "Topic", isHead: true, of: ({ name }) => h("a", { href: link(name) }, name) },
      { name: "State", of: state },
      { name: "Partitions", isNumber: true, of: ({ partitions }) => count(partitions.length) },
      { name: "Replicas", isNumber: true, of: ({ replicas }) => count(replicas) },
      { name: "Records", isNumber: true, of: ({ records }) => count(records) },
      { name: "Size", isNumber: true, class: "roomy", of: ({ size }) => bytes(size) },
      {
        name: h("span", { class: "hidden" }, "Records"),
        of: ({ name }) => h("a", { href: `${link(name)}/records` }, "records"),
      },
    ],
  });
}

function state({ offline, behind }) {
  if (offline > 0) return h("span", { class: "bad" }, `✕ ${count(offline)} without a leader`);
  return behind > 0
    ? h("span", { class: "bad" }, `! ${count(behind)} not in sync`)
    : h("span", { class: "well" }, "● in sync");
}

function partitionsTable(name, partitions) {
  return table({
    label: `Partitions of ${name}`,
    rows: partitions,
    key: ({ partition }) => String(partition),
    empty: "None.",
    columns: [
      { name: "Partition", isHead: true, isNumber: true, of: ({ partition }) => partition },
      {
        name: "Leader",
        of: ({ leader }) => (leader === null ? h("span", { class: "bad" }, "✕ none") : `broker ${leader}`),
      },
      { name: "Replicas", of: ({ replicas, leader }) => replicas.map((replica) => replicaMark(replica, leader)) },
      { name: "Start", isNumber: true, of: ({ log_start }) => count(log_start) },
      { name: "Committed end", isNumber: true, of: ({ high_watermark }) => count(high_watermark) },
      { name: "Log end", isNumber: true, class: "roomy", of: ({ log_end }) => count(log_end) },
      { name: "Size", isNumber: true, of: ({ replicas, leader }) => bytes(sizeOf(replicas, leader)) },
    ],
  });
}

function replicaMark({ broker_id, is_in_sync, is_alive, lag_records }, leader) {
  const role = !is_alive ? "out of service" : broker_id === leader ? "leader" : is_in_sync ? "in sync" : "not in sync";
  const lag = is_alive && lag_records > 0 && broker_id !== leader ? `, ${count(lag_records)} behind` : "";
  const isWell = is_alive && is_in_sync;
  return h(
    "span",
    { class: `replica ${isWell ? "" : "bad"}`, "data-key": String(broker_id) },
    h("b", null, broker_id),
    ` ${isWell ? "" : "✕ "}${role}${lag}`,
  );
}

/** Return the totals of a topic. A total is null if any part of it is unknown. */
function summary(name, partitions) {
  const positions = partitions.map((partition) => live.position(partition));
  const sum = (numbers) =>
    numbers.reduce(
      (total, number) => (total === null || number === null || number === undefined ? null : total + number),
      0,
    );
  return {
    name,
    partitions,
    replicas: partitions[0].replicas.length - partitions[0].removing.length,
    offline: partitions.filter(({ leader }) => leader === null).length,
    behind: partitions.filter((partition) => partition.is_under_replicated).length,
    records: sum(
      positions.map(({ high_watermark: end, log_start: start }) =>
        end === null || start === null ? null : end - start,
      ),
    ),
    size: sum(positions.map(({ replicas, leader }) => sizeOf(replicas, leader))),
  };
}

function sizeOf(replicas, leader) {
  return replicas.find(({ broker_id }) => broker_id === leader)?.size_bytes ?? null;
}

function link(name) {
  return `#/topics/${encodeURIComponent(name)}`;
}
