// Broker views: the list of brokers, and one broker with its state, the can-stop check, its disks and its configs.

import { Refusal, Silence, at, get } from "./api.js";
import { showVerdict } from "./actions.js";
import { configsOf } from "./configs.js";
import { h } from "./dom.js";
import { bytes, count } from "./format.js";
import { stateOf } from "./health.js";
import { live } from "./live.js";
import { facts, headed, table } from "./parts.js";

export function brokersView() {
  return {
    title: "Brokers",
    draw: () => [headed("Brokers"), brokersTable(live.cluster.brokers), quorum(live.cluster.quorum)],
  };
}

export function brokersTable(brokers) {
  return table({
    label: "Brokers",
    rows: brokers,
    key: (broker) => String(broker.broker_id),
    empty: "No broker has registered.",
    columns: [
      {
        name: "Broker",
        isHead: true,
        of: (broker) => h("a", { href: `#/brokers/${broker.broker_id}` }, `Broker ${broker.broker_id}`),
      },
      { name: "State", of: state },
      { name: "Leads", isNumber: true, of: (broker) => count(broker.led_partitions) },
      {
        name: "In sync",
        isNumber: true,
        of: (broker) => `${count(broker.in_sync_replicas)} of ${count(broker.replicas)}`,
      },
      {
        name: "Address",
        class: "roomy",
        of: (broker) => broker.endpoints.map(({ host, port }) => `${host}:${port}`)[0],
      },
      brokers.some(({ rack }) => rack !== null) && { name: "Rack", class: "roomy", of: ({ rack }) => rack ?? "" },
      {
        name: h("span", { class: "hidden" }, "Actions"),
        of: (broker) => h("button", { onclick: () => showVerdict(broker.broker_id) }, "Can it stop?"),
      },
    ].filter(Boolean),
  });
}

export function brokerView(redraw, name) {
  const configs = configsOf(redraw, at("brokers", name, "configs"), `broker ${name}`);
  const disks = Number(name) === live.cluster.answered_by ? disksHere(redraw) : null;
  return {
    title: `Broker ${name}`,
    draw: () => {
      const broker = live.cluster.brokers.find((each) => String(each.broker_id) === name);
      if (!broker) {
        return [
          headed(`Broker ${name}`),
          h("p", { class: "empty" }, `There is no broker ${name}. `, h("a", { href: "#/brokers" }, "All brokers")),
        ];
      }
      return [
        headed(
          [`Broker ${name} `, h("small", null, state(broker))],
          h("button", { onclick: () => showVerdict(broker.broker_id) }, "Can it stop?"),
        ),
        facts(factsOf(broker)),
        disks?.draw(),
        configs.draw(),
      ];
    },
  };
}

function state(broker) {
  const { isWell, word, mark } = stateOf(broker);
  return h(
    "span",
    { class: isWell ? "well" : "bad" },
    h("span", { "aria-hidden": true }, `${mark} `),
    word,
    broker.is_controller && ", controller",
  );
}

function factsOf(broker) {
  return [
    ["Leads", count(broker.led_partitions)],
    ["Replicas", count(broker.replicas)],
    ["In sync", count(broker.in_sync_replicas)],
    ["Rack", broker.rack ?? "none"],
    ["Epoch", count(broker.epoch)],
    ...broker.endpoints.map(({ listener, host, port }) => [listener, `${host}:${port}`]),
  ];
}

/** Show the log directories of the broker that serves this page: only a broker itself knows their state. */
function disksHere(redraw) {
  let directories = null;
  get("/v1/status").then(
    (status) => {
      directories = status.log_directories;
      redraw();
    },
    (error) => {
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
    },
  );
  return {
    draw: () =>
      directories && [
        h("h2", null, "Disks"),
        table({
          label: "Disks",
          rows: directories,
          key: (directory) => directory.path,
          empty: "None.",
          columns: [
            { name: "Directory", isHead: true, of: (directory) => directory.path },
            {
              name: "State",
              of: (directory) => h("span", { class: directory.error ? "bad" : "well" }, directory.error ?? "in use"),
            },
            { name: "Free", isNumber: true, of: (directory) => bytes(directory.free_bytes) },
            { name: "Size", isNumber: true, of: (directory) => bytes(directory.total_bytes) },
          ],
        }),
      ],
  };
}

function quorum({ leader, term, members }) {
  return [
    h("h2", null, "Metadata quorum"),
    h(
      "p",
      { class: "faint" },
      leader === null ? "No leader." : `Led by broker ${leader} since term ${count(term)}.`,
    ),
    table({
      label: "Metadata quorum",
      rows: members,
      key: (member) => String(member.broker_id),
      empty: "There are no voters.",
      columns: [
        { name: "Broker", isHead: true, of: (member) => `Broker ${member.broker_id}` },
        { name: "Role", of: (member) => (member.is_voter ? "voter" : "observer") },
        { name: "Log end", isNumber: true, of: (member) => count(member.log_end) },
        {
          name: "Heard",
          isNumber: true,
          of: (member) => (member.last_heard_ms_ago === null ? "" : `${count(member.last_heard_ms_ago)} ms ago`),
        },
      ],
    }),
  ];
}
