// Balance view: what each broker holds now and after the moves of a plan, and the cordons of brokers.

import { Refusal, Silence, at, get, patchJson } from "./api.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { bytes, count } from "./format.js";
import { headed, table } from "./parts.js";

const CORDONED = "cordoned.log.dirs";
const MOVES_SHOWN = 50;

export function balanceView(redraw) {
  let found = null;
  let mistake = null;

  // Once, and not at intervals: a plan of many partitions takes the broker a second.
  async function load() {
    try {
      found = await get("/v1/balance");
      mistake = null;
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
      mistake = error.message;
    }
    redraw();
  }

  load();
  return {
    title: "Balance",
    draw: () => [
      headed("Balance", h("button", { type: "button", onclick: load }, "Plan again")),
      mistake && h("p", { class: "error" }, mistake),
      found && plan(found, load),
    ],
  };
}

function plan({ verdict, problems, brokers, moves, copied_bytes: copied, expected_minutes: minutes }, again) {
  const cost = `${count(moves.length)} moves copy ${bytes(copied)}, in about ${minutes} minutes: cordwood balance --execute`;
  return h(
    "section",
    { "data-key": "plan" },
    h("p", { "data-key": "verdict" }, `Plan: ${verdict}.`),
    problems.map((problem) => h("p", { class: "error", "data-key": problem }, `${problem}.`)),
    table({
      label: "Brokers",
      rows: brokers,
      key: ({ broker_id: id }) => String(id),
      empty: "No broker has registered.",
      columns: [
        { name: "Broker", isHead: true, of: ({ broker_id: id }) => h("a", { href: `#/brokers/${id}` }, `Broker ${id}`) },
        { name: "State", of: stateOf },
        { name: "Bytes", isNumber: true, of: ({ now }) => bytes(now.size_bytes) },
        { name: "After", isNumber: true, of: ({ after }) => bytes(after.size_bytes) },
        { name: "Leaders", isNumber: true, of: ({ now }) => count(now.leaders) },
        { name: "After", isNumber: true, of: ({ after }) => count(after.leaders) },
        { name: "Replicas", class: "roomy", isNumber: true, of: ({ now }) => count(now.replicas) },
        { name: "After", class: "roomy", isNumber: true, of: ({ after }) => count(after.replicas) },
        { name: h("span", { class: "hidden" }, "Actions"), of: (broker) => cordonButton(broker, again) },
      ],
    }),
    h("h2", { "data-key": "heading" }, "Moves"),
    moves.length > 0 && h("p", { "data-key": "cost" }, cost),
    table({
      label: "Moves",
      rows: moves.slice(0, MOVES_SHOWN),
      key: ({ topic, partition }) => `${topic}-${partition}`,
      empty: "Nothing has to be moved.",
      columns: [
        { name: "Partition", isHead: true, of: ({ topic, partition }) => `${topic}-${partition}` },
        { name: "From", of: ({ before }) => before.join(", ") },
        { name: "To", of: ({ after }) => after.join(", ") },
        { name: "Copied", isNumber: true, of: ({ copied_bytes: size }) => bytes(size) },
      ],
    }),
  );
}

function stateOf({ is_alive: isAlive, is_cordoned: isCordoned }) {
  if (!isAlive) return "down";
  return isCordoned ? "cordoned" : "alive";
}

function cordonButton(broker, again) {
  const verb = broker.is_cordoned ? "Uncordon" : "Cordon";
  return h("button", { type: "button", onclick: () => cordon(broker, verb, again) }, verb);
}

function cordon({ broker_id: id, is_cordoned: isCordoned }, verb, done) {
  ask({
    title: `${verb} broker ${id}?`,
    verb: () => verb,
    content: () =>
      h("p", null, isCordoned ? "It may get new replicas again." : "It gets no new replicas. Those that it has stay."),
    act: async () => {
      await patchJson(at("brokers", String(id), "configs"), { configs: { [CORDONED]: isCordoned ? null : "*" } });
      done?.();
      return `Broker ${id} was ${isCordoned ? "uncordoned" : "cordoned"}.`;
    },
  });
}
