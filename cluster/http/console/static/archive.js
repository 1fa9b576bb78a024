// Archive view: what the archive has of each partition, and what the broker of this page still has to upload.

import { Refusal, Silence, get } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { repeat } from "./pace.js";
import { filterField, headed, table } from "./parts.js";

const INTERVAL_MS = 2_000;
const ROWS_MAX = 200;

export function archiveView(redraw) {
  let filter = "";
  let found = null;
  let mistake = null;
  const turn = repeat(async () => {
    try {
      found = await get(`/v1/archive?limit=${ROWS_MAX}`);
      mistake = null;
      return true;
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
      mistake = error.message;
      return false;
    } finally {
      redraw();
    }
  }, INTERVAL_MS);
  return {
    title: "Archive",
    stop: turn.stop,
    draw: () => [
      headed(
        "Archive",
        filterField("Filter topics", (text) => {
          filter = text;
          redraw();
        }),
      ),
      mistake && h("p", { class: "error" }, mistake),
      found && list(found, filter),
    ],
  };
}

function list({ partitions, total, has_archive: hasArchive, failure }, filter) {
  const left = total > partitions.length ? ` These are the first ${count(partitions.length)}.` : "";
  return [
    failure && h("p", { class: "bad", "data-key": "failure" }, `! The object store failed: ${failure}`),
    total > 0 && h("p", { class: "faint" }, `${plural(total, "partition")} with an archive.${left}`),
    table({
      label: "Archived partitions",
      rows: partitions.filter(({ topic }) => topic.toLowerCase().includes(filter)),
      key: ({ topic, partition }) => `${topic}-${partition}`,
      empty:
        total > 0
          ? "No topic matches: change the filter."
          : hasArchive
            ? "No topic is archived: set remote.storage.enable=true on one."
            : "This broker has no archive: set archive.url, and remote.storage.enable=true on a topic.",
      columns: [
        {
          name: "Topic",
          isHead: true,
          of: ({ topic }) => h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
        },
        { name: "Partition", isNumber: true, of: ({ partition }) => partition },
        { name: "From offset", isNumber: true, of: ({ start }) => known(start, count) },
        { name: "To offset", isNumber: true, of: ({ end }) => known(end, count) },
        { name: "Segments", isNumber: true, of: ({ segments }) => count(segments) },
        { name: "Size", isNumber: true, of: ({ bytes: size }) => bytes(size) },
        { name: "Still to upload", isNumber: true, of: ({ backlog_bytes: size }) => known(size, bytes) },
        { name: "Leader", class: "roomy", of: ({ leader }) => (leader === null ? "none" : `broker ${leader}`) },
      ],
    }),
  ];
}

/** Other brokers know the backlog of the partitions that they lead. */
function known(number, text) {
  return number === null ? "" : text(number);
}
