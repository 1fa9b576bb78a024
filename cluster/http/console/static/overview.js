// Overview page: cluster health, the replicas on each broker, and throughput.

import { createTopic, electPreferred } from "./actions.js";
import { brokersTable } from "./brokers.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, seconds, short } from "./format.js";
import { healthOf } from "./health.js";
import { live } from "./live.js";
import { legend, picture } from "./picture.js";
import { facts, tick } from "./parts.js";

export function overview() {
  return { title: "Overview", draw };
}

function draw() {
  const { cluster } = live;
  return [
    health(healthOf(cluster)),
    facts(factsOf(cluster)),
    h(
      "div",
      { class: "wide" },
      h(
        "section",
        { "aria-label": "Brokers and partitions" },
        h("h2", null, "Brokers"),
        brokersTable(cluster.brokers),
        partitions(cluster),
      ),
      h("section", { class: "charts", "aria-label": "Throughput and latency" }, charts(cluster.answered_by)),
    ),
  ];
}

function health({ isWell, sentences: [worst, ...others] }) {
  return [
    h(
      "h1",
      { class: `health ${isWell ? "well" : "bad"}`, tabindex: -1 },
      h("span", { class: "mark", "aria-hidden": true }, isWell ? "✓" : "!"),
      h("span", { role: "status" }, worst),
    ),
    others.length > 0 &&
      h(
        "ul",
        { class: "troubles", "data-key": "troubles" },
        others.map((sentence) => h("li", null, sentence)),
      ),
  ];
}

function partitions({ brokers }) {
  return [
    h(
      "div",
      { class: "head" },
      h("h2", null, "Partitions"),
      h(
        "span",
        { class: "tools" },
        tick("internal topics", live.showsInternal, (isWanted) => live.showInternal(isWanted)),
        h("button", { onclick: () => electPreferred(null) }, "Elect preferred leaders"),
      ),
    ),
    live.partitions.length > 0
      ? [legend(), picture(live.partitions, brokers, (partition) => live.position(partition))]
      : h(
          "p",
          { class: "empty" },
          "There are no topics. ",
          h("button", { onclick: () => createTopic() }, "Create a topic"),
          ", or start a producer, which creates it.",
        ),
  ];
}

function factsOf(cluster) {
  return [
    [
      "Brokers in service",
      `${cluster.brokers.filter((broker) => !broker.is_fenced).length} of ${cluster.brokers.length}`,
    ],
    ["Controller", cluster.controller === null ? "none" : `broker ${cluster.controller}`],
    ["Topics", count(cluster.topic_count)],
    ["Partitions", count(cluster.partition_count)],
    ["Not in sync", count(cluster.under_replicated_partitions)],
    ["Without a leader", count(cluster.offline_partitions)],
    ["Moving", count(cluster.reassigning_partitions)],
    ["Connections here", count(live.pulse?.connections)],
  ];
}

function charts(broker) {
  const perSecond = (number) => (number === null ? count(number) : `${short(number)}/s`);
  const bytesPerSecond = (number) => (number === null ? bytes(number) : `${bytes(number)}/s`);
  const here = `at broker ${broker}`;
  return [
    chart({
      title: "Records written",
      note: "all brokers",
      unit: perSecond,
      empty: "Waiting for data.",
      series: [{ name: "committed", kind: "main", history: live.records }],
    }),
    chart({
      title: "Bytes",
      note: here,
      unit: bytesPerSecond,
      empty: "Waiting for data.",
      series: [
        { name: "produced", kind: "main", history: live.produced },
        { name: "fetched", kind: "second", history: live.fetched },
      ],
    }),
    chart({
      title: "Produce latency",
      note: here,
      unit: seconds,
      empty: "No produce requests on this broker in the last minutes.",
      series: [
        { name: "median", kind: "main", history: live.produceMedian },
        { name: "99 %", kind: "second", history: live.produceTail },
      ],
    }),
    chart({
      title: "Disk flush",
      note: here,
      unit: seconds,
      empty: "No flushes on this broker in the last minutes.",
      series: [{ name: "99 %", kind: "main", history: live.flushTail }],
    }),
  ];
}
