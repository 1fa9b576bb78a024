// Consumer group views: the list of groups, and one group with its lag over time, its partitions and its members.

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
        group.partitions && [behind(group), positions(group), members(group)],
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

function heading({ group, state, members, coordinator, partitions }) {
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
      `${state}; ${plural(members?.length ?? 0, "member")}; coordinated by broker ${coordinator}.`,
    ),
  ];
}

function behind({ group }) {
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

function positions({ partitions }) {
  return [
    h("h2", null, "Partitions"),
    table({
      label: "Partitions",
      rows: partitions,
      key: ({ topic, partition }) => `${topic}/${partition}`,
      empty: "No committed offsets and no assigned partitions.",
      columns: [
        {
          name: "Topic",
          isHead: true,
          of: ({ topic }) => h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
        },
        { name: "Partition", isNumber: true, of: ({ partition }) => partition },
        { name: "Committed", isNumber: true, of: ({ committed }) => count(committed) },
        { name: "End", isNumber: true, of: ({ end }) => count(end) },
        { name: "Lag", isNumber: true, of: ({ lag_records }) => count(lag_records) },
        { name: "Member", class: "roomy", of: ({ member_id }) => member_id ?? "" },
      ],
    }),
  ];
}

function members({ members: rows }) {
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
        { name: "Member", class: "roomy", of: ({ member_id, instance_id }) => instance_id ?? member_id },
      ],
    }),
  ];
}

function link(name) {
  return `#/groups/${encodeURIComponent(name)}`;
}
