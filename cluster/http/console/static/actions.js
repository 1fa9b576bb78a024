// Operator actions: each opens a dialog that states the consequences and asks for confirmation.

import { at, get, post, remove } from "./api.js";
import { ask, askByName, choice, field } from "./dialogs.js";
import { h } from "./dom.js";
import { UNKNOWN, count, plural, signed } from "./format.js";
import { placeOf } from "./live.js";
import { table } from "./parts.js";

const RESET_TO = [
  ["earliest", "the earliest record"],
  ["latest", "the end"],
  ["offset", "an offset"],
  ["time", "a time"],
];

/** Ask for the topic's settings and create it. Call `done` with the topic's name after its creation. */
export function createTopic(done) {
  const wanted = { name: "", partitions: "", replication_factor: "" };
  ask({
    title: "Create a topic",
    verb: () => "Create",
    isReady: () => wanted.name !== "",
    content: () => [
      field(
        "Name",
        { name: "name", required: true, maxlength: 249, spellcheck: "false", autocapitalize: "off", autofocus: true },
        (text) => (wanted.name = text),
      ),
      field(
        "Partitions",
        { name: "partitions", type: "number", min: 1 },
        (text) => (wanted.partitions = text),
        "The largest number of consumers in one group that can read in parallel. Empty: the broker's num.partitions.",
      ),
      field(
        "Replicas",
        { name: "copies", type: "number", min: 1 },
        (text) => (wanted.replication_factor = text),
        "The number of brokers that store each record. Empty: the broker's default.replication.factor.",
      ),
    ],
    act: async () => {
      const counts = Object.entries(wanted).filter(([name, text]) => name !== "name" && text !== "");
      const made = await post("/v1/topics", {
        name: wanted.name,
        ...Object.fromEntries(counts.map(([name, text]) => [name, Number(text)])),
      });
      done?.(made.name);
      const partitions = plural(made.partition_count, "partition");
      return `Topic ${made.name} was created: ${partitions}, ${plural(made.replication_factor, "replica")} each.`;
    },
  });
}

export function deleteTopic(name, records, done) {
  askByName(name, {
    title: `Delete topic ${name}?`,
    verb: "Delete",
    warning: [
      "Its ",
      h("b", null, records === null ? "records" : plural(records, "record")),
      " will be deleted on all brokers. This cannot be undone.",
    ],
    act: async () => {
      await remove(at("topics", name));
      done?.();
      return `Topic ${name} was deleted.`;
    },
  });
}

/** Elect the preferred leader, which is the first replica, of each partition of `topic`, or of all topics if null. */
export function electPreferred(topic, partitions) {
  ask({
    title: topic === null ? "Elect preferred leaders?" : `Elect preferred leaders of ${topic}?`,
    verb: () => "Elect",
    content: () =>
      h(
        "p",
        null,
        "The first replica of each partition becomes its leader again, if it is in sync. ",
        "Clients reconnect to the new leaders.",
      ),
    act: async () =>
      outcome(
        await post("/v1/elections", {
          type: "preferred",
          partitions: topic === null ? null : placed(topic, partitions),
        }),
      ),
  });
}

/** Run an unclean leader election for the leaderless `partitions` of `topic`. */
export function electUnclean(topic, partitions) {
  askByName(topic, {
    title: `Elect out-of-sync leaders of ${topic}?`,
    verb: "Elect and lose records",
    warning: [
      `${plural(partitions.length, "partition")} without a leader: `,
      `${partitions.map(({ partition }) => partition).join(", ")}. An out-of-sync replica becomes leader: `,
      h("b", null, "acknowledged records may be lost permanently."),
      " If possible, start a broker with an in-sync replica instead.",
    ],
    act: async () => outcome(await post("/v1/elections", { type: "unclean", partitions: placed(topic, partitions) })),
  });
}

/** Preview the reset of a consumer group's offsets as a dry run, then reset them. */
export function resetGroup(group, topics, done) {
  let to = "earliest";
  let exact = "";
  let topic = "";
  let preview = null;
  const changed = (change) => (value) => {
    change(value);
    preview = null;
  };
  const wanted = () => ({
    to: to === "offset" || to === "time" ? moment(to, exact) : to,
    topics: topic === "" ? null : [topic],
  });
  ask({
    title: `Reset group ${group}`,
    verb: () => (preview === null ? "Preview" : "Reset"),
    isDangerous: () => preview !== null,
    isReady: () => (to !== "offset" && to !== "time") || exact !== "",
    content: () => [
      choice(
        "New position",
        RESET_TO,
        to,
        changed((value) => ([to, exact] = [value, ""])),
      ),
      to === "offset" &&
        field(
          "Offset",
          { name: "exact", type: "number", min: 0 },
          changed((text) => (exact = text)),
        ),
      to === "time" &&
        field(
          "Time",
          { name: "exact", type: "datetime-local", step: 1 },
          changed((text) => (exact = text)),
        ),
      choice(
        "In",
        [["", "all topics with committed offsets"], ...topics.map((name) => [name, name])],
        topic,
        changed((value) => (topic = value)),
      ),
      preview && moves(preview),
    ],
    act: async () => {
      if (preview === null) {
        preview = (await post(at("groups", group, "reset"), { ...wanted(), dry_run: true })).partitions;
        return null;
      }
      const { partitions } = await post(at("groups", group, "reset"), wanted());
      done?.();
      return `The offsets of group ${group} were reset in ${plural(partitions.length, "partition")}.`;
    },
  });
}

export function deleteGroup(group, done) {
  askByName(group, {
    title: `Delete group ${group}?`,
    verb: "Delete",
    warning: "Its committed offsets will be deleted. Records are kept.",
    act: async () => {
      await remove(at("groups", group));
      done?.();
      return `Group ${group} was deleted.`;
    },
  });
}

/** Show whether a broker can be stopped safely. Read-only. */
export function showVerdict(broker) {
  let verdict = null;
  ask({
    title: `Can broker ${broker} be stopped now?`,
    verb: () => "Check again",
    beginsAtOnce: true,
    content: () => [
      verdict &&
        h(
          "p",
          { class: verdict.can_stop ? "well" : "bad" },
          verdict.can_stop ? "✓ Yes: clients would not be affected." : "✕ No.",
        ),
      verdict &&
        h(
          "ul",
          null,
          verdict.reasons.map((reason) => h("li", null, reason)),
        ),
    ],
    act: async () => {
      verdict = await get(at("brokers", String(broker), "can-stop"));
      return null;
    },
  });
}

function placed(topic, partitions) {
  return partitions.map(({ partition }) => ({ topic, partition }));
}

function outcome({ partitions }) {
  const refused = partitions.filter((row) => !row.is_done && row.code !== "ELECTION_NOT_NEEDED");
  const done = partitions.filter((row) => row.is_done).length;
  const first = refused.length > 0 ? ` ${plural(refused.length, "partition")} not: ${refused[0].error}` : "";
  return `${plural(done, "partition")} ${done === 1 ? "has" : "have"} another leader.${first}`;
}

/** Return the position in the API's format: `@` and epoch milliseconds for a local time, an offset unchanged. */
function moment(kind, text) {
  return kind === "time" ? `@${new Date(text).getTime()}` : text;
}

function moves(partitions) {
  const change = ({ committed, new: next }) => (committed === null ? UNKNOWN : signed(next - committed));
  return table({
    label: "Offset changes",
    rows: partitions,
    key: placeOf,
    empty: "",
    columns: [
      { name: "Topic", isHead: true, of: ({ topic }) => topic },
      { name: "Partition", isNumber: true, of: ({ partition }) => partition },
      { name: "Committed", isNumber: true, of: ({ committed }) => count(committed) },
      { name: "New", isNumber: true, of: ({ new: next }) => count(next) },
      { name: "Change", isNumber: true, of: change },
    ],
  });
}
