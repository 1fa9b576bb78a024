// Group views: the list of groups of all types, and one group with its lag over time, its partitions and its members.

import { deleteGroup, resetGroup } from "./actions.js";
import { chart, sparkline } from "./chart.js";
import { h } from "./dom.js";
import { UNKNOWN, count, plural } from "./format.js";
import { live } from "./live.js";
import { filterField, headed, table } from "./parts.js";

export function groupsView(redraw) {
  let filter = "";
  return {
    title: "Groups",
    draw: () => [
      headed(
        "Groups",
        filterField("Filter groups", (text) => {
          filter = text;
          redraw();
        }),
      ),
      live.groupsUnansweredBy.length > 0 &&
        h(
          "p",
          { class: "bad", "data-key": "unanswered" },
          `! The groups of ${live.groupsUnansweredBy.map((id) => `broker ${id}`).join(", ")} are missing: no answer.`,
        ),
      list(live.groups.filter(({ group }) => group.toLowerCase().includes(filter))),
    ],
  };
}

export function groupView(redraw, name) {
  live.refreshGroups();
  return {
    title: name,
    draw: () => {
      const group = live.groups.find((row) => row.group === name);
      if (!group) {
        return [
          headed(name),
          h("p", { class: "empty" }, "The group does not exist. ", h("a", { href: "#/groups" }, "All groups")),
        ];
      }
      return [
        heading(group),
        group.refusal && h("p", { class: "error" }, group.refusal),
        group.partitions && [lagChart(group), group.type === "share" ? queues(group) : positions(group), members(group)],
      ];
    },
  };
}

function list(groups) {
  return table({
    label: "Groups",
    rows: groups,
    key: ({ group }) => group,
    empty:
      live.groups.length === 0
        ? "There are no groups: consumers with a group.id appear here."
        : "No group matches: change the filter.",
    columns: [
      { name: "Group", isHead: true, of: ({ group }) => h("a", { href: link(group) }, group) },
      { name: "Type", of: ({ type }) => type },
      { name: "State", of: ({ state }) => state },
      { name: "Members", isNumber: true, of: ({ members }) => count(members?.length) },
      { name: "Lag", isNumber: true, of: ({ lag_records }) => count(lag_records) },
      {
        name: "Last minutes",
        of: ({ group }) =>
          live.lags.has(group) && sparkline(live.lags.get(group), `Lag of ${group} in the last minutes`),
      },
      { name: "Coordinator", class: "roomy", of: ({ coordinator }) => `broker ${coordinator}` },
    ],
  });
}

function heading(described) {
  const { group, type, state, members, coordinator, partitions } = described;
  const topics = [...new Set((partitions ?? []).map(({ topic }) => topic))];
  const back = () => {
    location.hash = "#/groups";
    live.refreshGroups();
  };
  return [
    headed(
      group,
      h("button", { onclick: () => resetGroup(group, topics, live.refreshGroups) }, "Reset …"),
      h("button", { class: "dangerous", onclick: () => deleteGroup(group, back) }, "Delete"),
    ),
    h(
      "p",
      { class: "faint" },
      `${type} group; ${state}; ${plural(members?.length ?? 0, "member")}${epochs(described)}; ` +
        `coordinated by broker ${coordinator}.`,
    ),
    deadLetters(described),
  ];
}

// The epoch of the group, and that of its assignment while a newer one is being computed.
function epochs({ group_epoch, assignment_epoch }) {
  if (group_epoch === null || group_epoch === undefined) {
    return "";
  }
  return assignment_epoch === group_epoch
    ? `; epoch ${group_epoch}`
    : `; epoch ${group_epoch}, assignment of epoch ${assignment_epoch}`;
}

function deadLetters({ dead_letter_topic: topic }) {
  return (
    topic &&
    h(
      "p",
      { class: "faint", "data-key": "dead-letters" },
      "Records that are rejected, or delivered too often, go to ",
      h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
      ".",
    )
  );
}

function lagChart({ group }) {
  const history = live.lags.get(group);
  return (
    history &&
    chart({
      title: "Lag",
      unit: (records) => (records === null ? UNKNOWN : plural(records, "record")),
      empty: "No committed offsets.",
      series: [{ name: "behind", kind: "main", history }],
    })
  );
}

function placesTable(partitions, empty, columns) {
  return [
    h("h2", null, "Partitions"),
    table({
      label: "Partitions",
      rows: partitions,
      key: ({ topic, partition }) => `${topic}/${partition}`,
      empty,
      columns: [
        {
          name: "Topic",
          isHead: true,
          of: ({ topic }) => h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
        },
        { name: "Partition", isNumber: true, of: ({ partition }) => partition },
        ...columns,
      ],
    }),
  ];
}

function positions({ partitions }) {
  return placesTable(partitions, "No committed offsets and no assigned partitions.", [
    { name: "Committed", isNumber: true, of: ({ committed }) => count(committed) },
    { name: "End", isNumber: true, of: ({ end }) => count(end) },
    { name: "Lag", isNumber: true, of: ({ lag_records }) => count(lag_records) },
    { name: "Member", class: "roomy", of: ({ member_id }) => member_id ?? "" },
  ]);
}

function queues({ partitions }) {
  return placesTable(partitions, "No records were delivered yet.", [
    { name: "Start", isNumber: true, of: ({ share }) => count(share?.start) },
    { name: "End", isNumber: true, of: ({ end }) => count(end) },
    { name: "Not finished", isNumber: true, of: ({ lag_records }) => count(lag_records) },
    { name: "In flight", isNumber: true, of: ({ share }) => count(share?.in_flight) },
    { name: "Locked", isNumber: true, of: ({ share }) => count(share?.locked) },
    { name: "Deliveries", isNumber: true, of: ({ share }) => count(share?.delivery_count_max) },
    { name: "Members", class: "roomy", isNumber: true, of: ({ share }) => count(share?.members.length) },
  ]);
}

function members({ type, members: rows }) {
  return [
    h("h2", null, "Members"),
    table({
      label: "Members",
      rows,
      key: ({ member_id }) => member_id,
      empty: "No members: its offsets can be reset.",
      columns: [
        { name: "Client", isHead: true, of: ({ client_id }) => client_id },
        { name: "Host", of: ({ client_host }) => client_host },
        type !== "classic" && { name: "Epoch", isNumber: true, of: ({ epoch }) => count(epoch) },
        { name: "Partitions", isNumber: true, of: assigned },
        { name: "Member", class: "roomy", of: ({ member_id, instance_id }) => instance_id ?? member_id },
      ].filter(Boolean),
    }),
  ];
}

// The partitions that a member reads, and those that it is to read where that differs in number.
function assigned({ partition_count: now, target_count: target }) {
  return target === null || target === undefined || target === now ? count(now) : `${count(now)} → ${count(target)}`;
}

function link(name) {
  return `#/groups/${encodeURIComponent(name)}`;
}
