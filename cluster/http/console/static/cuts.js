// Cut view: the topics as of earlier moments that brokers keep under names.

import { at, remove } from "./api.js";
import { askByName } from "./dialogs.js";
import { h } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { headed, table } from "./parts.js";
import { polled } from "./polled.js";

export function cutsView(redraw) {
  const asking = polled(redraw, () => "/v1/cuts");
  return {
    title: "Cuts",
    stop: asking.stop,
    draw: () => [
      headed("Cuts"),
      asking.mistake && h("p", { class: "error" }, asking.mistake),
      asking.found && list(asking.found.cuts, asking.again),
    ],
  };
}

function list(cuts, again) {
  return table({
    label: "Cuts",
    rows: cuts,
    key: ({ name }) => name,
    empty: "There are no cuts: cordwood cut create keeps topics as they are under a name.",
    columns: [
      { name: "Name", isHead: true, of: ({ name }) => name },
      { name: "Topics", of: ({ topics }) => topics.map(({ topic }) => topic).join(", ") },
      { name: "Offsets", isNumber: true, of: ({ topics }) => count(offsets(topics)) },
      { name: "Created", of: ({ created_ms: ms }) => moment(ms) },
      { name: "Expires", class: "roomy", of: ({ expires_ms: ms }) => (ms === null ? "never" : moment(ms)) },
      { name: "", of: (cut) => h("button", { type: "button", onclick: () => drop(cut, again) }, "Drop") },
    ],
  });
}

function drop({ name, topics }, done) {
  askByName(name, {
    title: `Drop cut ${name}?`,
    verb: "Drop",
    warning: `Retention and compaction may then remove what only this cut keeps of ${plural(topics.length, "topic")}.`,
    act: async () => {
      await remove(at("cuts", name));
      done?.();
      return `Cut ${name} was dropped.`;
    },
  });
}

function offsets(topics) {
  return topics.flatMap(({ partitions }) => partitions).reduce((sum, { start, end }) => sum + end - start, 0);
}
