// Replica map of the cluster: a block for each topic, a row for each broker, a column for each partition.

import { h, kept, s } from "./dom.js";
import { count, plural } from "./format.js";

const CELL = 17;
const STEP = 20;
const LEFT = 26;
const TOP = 13;
const NARROW = matchMedia("(width < 720px)");
const columnsMax = () => (NARROW.matches ? 12 : 24);
const NUMBERED = 4;
const CELLS_MAX = 6_000;
/** Lag in records that fills a bar. The height is logarithmic. */
const FULL_LAG = 1_000_000;

/** Return the replica map. `positionOf` returns a partition with its known offsets and lag. */
export function picture(partitions, brokers, positionOf) {
  const ids = brokers.map((broker) => broker.broker_id);
  const topics = byTopic(partitions);
  const blocks = [];
  let cells = 0;
  for (const [topic, rows] of topics) {
    cells += rows.length * ids.length;
    if (cells > CELLS_MAX && blocks.length > 0) break;
    const positions = rows.map(positionOf);
    const version = JSON.stringify([ids, columnsMax(), rows, positions.map(lagsOf)]);
    const figure = h("figure", { class: "block", "data-key": `block ${topic}` });
    blocks.push(kept(figure, version, () => block(topic, rows, ids, positions)));
  }
  const left = topics.size - blocks.length;
  return [
    h("div", { class: "blocks" }, blocks),
    left > 0 &&
      h("p", { class: "faint" }, `${plural(left, "more topic")}: see `, h("a", { href: "#/topics" }, "Topics"), "."),
  ];
}

/** Return the legend of the replica map. */
export function legend() {
  const mark = (kind, words) =>
    h("li", null, s("svg", { width: CELL, height: CELL, "aria-hidden": true }, shape(kind, 0, 0, 0.4)), words);
  return h(
    "ul",
    { class: "legend" },
    mark("leader", "leader"),
    mark("follower", "in sync"),
    mark("behind", "in sync with lag: the bar is the lag"),
    mark("out", "not in sync"),
    mark("down", "broker out of service"),
    mark("none", "no replica"),
  );
}

/** Return a map from topic name to partitions. */
export function byTopic(partitions) {
  const topics = new Map();
  for (const partition of partitions) {
    if (!topics.has(partition.topic)) topics.set(partition.topic, []);
    topics.get(partition.topic).push(partition);
  }
  return topics;
}

function lagsOf({ replicas }) {
  return replicas.map(({ lag_records }) => lag_records);
}

function block(topic, partitions, ids, positions) {
  const perBand = columnsMax();
  const columns = Math.min(partitions.length, perBand);
  const bandHeight = TOP + ids.length * STEP;
  const bands = Math.ceil(partitions.length / perBand);
  const width = LEFT + columns * STEP;
  const troubled = partitions.filter((partition) => partition.is_under_replicated || partition.leader === null).length;
  const sentence = troubled > 0 ? `${plural(troubled, "partition")} not in sync` : "all in sync";
  return [
    h(
      "figcaption",
      null,
      h("a", { href: `#/topics/${encodeURIComponent(topic)}`, title: topic }, topic),
      h(
        "span",
        { class: troubled > 0 ? "bad" : "faint" },
        troubled > 0 ? `! ${sentence}` : plural(partitions.length, "partition"),
      ),
    ),
    s(
      "svg",
      {
        width,
        height: bands * bandHeight,
        role: "img",
        "aria-label": `${topic}: ${plural(partitions.length, "partition")}, ${sentence}`,
      },
      Array.from({ length: bands }, (_, band) =>
        ids.map((id, row) =>
          s("text", { x: LEFT - 7, y: band * bandHeight + TOP + row * STEP + 13, class: "broker" }, id),
        ),
      ),
      partitions.map((partition, at) =>
        column(positions[at], partition, ids, LEFT + (at % perBand) * STEP, Math.floor(at / perBand) * bandHeight),
      ),
    ),
  ];
}

function column(position, partition, ids, x, y) {
  return s(
    "g",
    { "data-key": `partition ${partition.partition}` },
    partition.partition % NUMBERED === 0 &&
      s("text", { x: x + CELL / 2, y: y + 9, class: "number" }, partition.partition),
    ids.map((id, row) => cell(position, partition, id, x, y + TOP + row * STEP)),
  );
}

function cell(position, partition, id, x, y) {
  const replica = partition.replicas.find((each) => each.broker_id === id);
  const lag = position.replicas.find((each) => each.broker_id === id)?.lag_records ?? null;
  const kind = kindOf(partition, replica, lag);
  const filled = lag === null ? 0 : Math.min(Math.log10(1 + lag) / Math.log10(FULL_LAG), 1);
  return s(
    "g",
    { "data-key": `broker ${id}`, "data-kind": kind },
    s("title", null, words(partition, id, kind, lag)),
    shape(kind, x, y, filled),
  );
}

function kindOf(partition, replica, lag) {
  if (replica === undefined) return "none";
  if (!replica.is_alive) return "down";
  if (partition.leader === replica.broker_id) return "leader";
  if (!replica.is_in_sync) return "out";
  return lag > 0 ? "behind" : "follower";
}

function words(partition, id, kind, lag) {
  const role = {
    leader: "leader",
    follower: "in sync",
    behind: "in sync",
    out: "not in sync",
    down: "broker out of service",
    none: "no replica",
  }[kind];
  const behind = lag > 0 && kind !== "leader" && kind !== "down" ? `, ${plural(lag, "record")} behind` : "";
  return `${partition.topic} ${count(partition.partition)} on broker ${id}: ${role}${behind}`;
}

function shape(kind, x, y, filled) {
  if (kind === "none") return s("circle", { class: "none", cx: x + CELL / 2, cy: y + CELL / 2, r: 1.5 });
  const box = s("rect", { class: `cell ${kind}`, x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3 });
  const height = (kind === "behind" || kind === "out") && filled > 0 ? Math.max(2, (CELL - 4) * filled) : 0;
  return [
    box,
    kind === "down" && s("path", { class: "cross", d: `M${x + 5} ${y + 5}l7 7m0 -7l-7 7` }),
    height > 0 && s("rect", { class: `lag ${kind}`, x: x + 2, y: y + CELL - 2 - height, width: CELL - 4, height }),
    kind === "leader" && s("circle", { class: "crown", cx: x + CELL / 2, cy: y + CELL / 2, r: 2.5 }),
  ];
}
