// Transaction views: the open transactions of the cluster, the oldest first, and one transactional id.

import { at } from "./api.js";
import { h } from "./dom.js";
import { count, moment, plural, seconds } from "./format.js";
import { facts, filterField, headed, table, tick } from "./parts.js";
import { polled } from "./polled.js";

const ROWS_MAX = 200;
const OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"];

export function transactionsView(redraw) {
  let filter = "";
  let isOpenOnly = true;
  const asking = polled(redraw, () => {
    const states = isOpenOnly ? OPEN : [];
    return `/v1/transactions?${new URLSearchParams([...states.map((state) => ["state", state]), ["limit", ROWS_MAX]])}`;
  });
  return {
    title: "Transactions",
    stop: asking.stop,
    draw: () => [
      headed(
        "Transactions",
        filterField("Filter transactional ids", (text) => {
          filter = text;
          redraw();
        }),
        tick("Only open", isOpenOnly, (isOn) => {
          isOpenOnly = isOn;
          asking.again();
        }),
      ),
      asking.mistake && h("p", { class: "error" }, asking.mistake),
      asking.found && list(asking.found, filter, isOpenOnly),
    ],
  };
}

export function transactionView(redraw, name) {
  const asking = polled(redraw, () => at("transactions", name));
  return {
    title: name,
    stop: asking.stop,
    draw: () => [
      headed(name),
      asking.mistake &&
        h("p", { class: "empty" }, asking.mistake, " ", h("a", { href: "#/transactions" }, "All transactions")),
      asking.mistake === null && asking.found && described(asking.found),
    ],
  };
}

function list({ transactions, total, unanswered_by: unanswered }, filter, isOpenOnly) {
  const left = total > transactions.length ? ` These are the first ${count(transactions.length)}.` : "";
  const what = plural(total, isOpenOnly ? "open transaction" : "transactional id");
  return [
    unanswered.length > 0 &&
      h(
        "p",
        { class: "bad", "data-key": "unanswered" },
        `! The transactions of ${unanswered.map((id) => `broker ${id}`).join(", ")} are missing: no answer.`,
      ),
    total > 0 && h("p", { class: "faint" }, `${what}, the oldest open one first.${left}`),
    table({
      label: "Transactions",
      rows: transactions.filter(({ transactional_id: id }) => id.toLowerCase().includes(filter)),
      key: ({ transactional_id: id }) => id,
      empty:
        total === 0
          ? "There are no open transactions: those of producers with a transactional.id appear here."
          : "No transactional id matches: change the filter.",
      columns: [
        {
          name: "Transactional id",
          isHead: true,
          of: ({ transactional_id: id }) => h("a", { href: `#/transactions/${encodeURIComponent(id)}` }, id),
        },
        { name: "State", of: ({ state }) => state },
        { name: "Open for", isNumber: true, of: ({ open_for_ms: ms }) => age(ms) },
        { name: "Producer id", isNumber: true, of: ({ producer_id: id }) => id },
        { name: "Coordinator", class: "roomy", of: ({ coordinator }) => `broker ${coordinator}` },
      ],
    }),
  ];
}

function described(found) {
  const isLate = found.open_for_ms !== null && found.open_for_ms > found.timeout_ms;
  return [
    isLate && h("p", { class: "bad", "data-key": "late" }, "! The transaction is open for longer than its timeout."),
    facts([
      ["State", found.state],
      ["Open for", age(found.open_for_ms)],
      ["Began", found.start_ms === null ? "" : moment(found.start_ms)],
      ["Timeout", age(found.timeout_ms)],
      ["Producer id", found.producer_id],
      ["Epoch", found.producer_epoch],
      ["Coordinator", h("a", { href: `#/brokers/${found.coordinator}` }, `broker ${found.coordinator}`)],
    ]),
    h("h2", null, "Partitions"),
    table({
      label: "Partitions",
      rows: found.partitions,
      key: ({ topic, partition }) => `${topic}/${partition}`,
      empty: "No partition is in an open transaction.",
      columns: [
        {
          name: "Topic",
          isHead: true,
          of: ({ topic }) => h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
        },
        { name: "Partition", isNumber: true, of: ({ partition }) => partition },
      ],
    }),
  ];
}

function age(ms) {
  return ms === null ? "" : seconds(ms / 1000);
}
