// Move view: partition reassignments in progress, with the bytes and minutes that are left.

import { post } from "./api.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { UNKNOWN, bytes } from "./format.js";
import { headed, table } from "./parts.js";
import { polled } from "./polled.js";

export function movesView(redraw) {
  const asking = polled(redraw, () => "/v1/reassignments");
  return {
    title: "Moves",
    stop: asking.stop,
    draw: () => [
      headed("Moves"),
      asking.mistake && h("p", { class: "error" }, asking.mistake),
      asking.found && list(asking.found.moves, asking.again),
    ],
  };
}

function list(moves, again) {
  return table({
    label: "Moves",
    rows: moves,
    key: ({ topic, partition }) => `${topic}-${partition}`,
    empty: "No partition is being moved.",
    columns: [
      { name: "Partition", isHead: true, of: ({ topic, partition }) => `${topic}-${partition}` },
      { name: "Added on", of: ({ adding }) => adding.join(", ") },
      { name: "Removed from", of: ({ removing }) => removing.join(", ") },
      { name: "Left", isNumber: true, of: ({ bytes_left: left }) => bytes(left) },
      { name: "Of", class: "roomy", isNumber: true, of: ({ bytes_total: total }) => bytes(total) },
      { name: "Rate", isNumber: true, of: ({ bytes_per_second: rate }) => (rate === null ? UNKNOWN : `${bytes(rate)}/s`) },
      { name: "Minutes", isNumber: true, of: ({ minutes_left: minutes }) => minutes ?? UNKNOWN },
      { name: "", of: (move) => h("button", { type: "button", onclick: () => takeBack(move, again) }, "Take back") },
    ],
  });
}

function takeBack({ topic, partition }, done) {
  ask({
    title: `Take back the move of ${topic}-${partition}?`,
    verb: () => "Take back",
    content: () => h("p", null, "The partition keeps the replicas that it had before. What was copied is deleted."),
    act: async () => {
      const { partitions } = await post("/v1/reassignments", { moves: [{ topic, partition, replicas: null }] });
      done?.();
      return partitions[0].error ?? `The move of ${topic}-${partition} was taken back.`;
    },
  });
}
