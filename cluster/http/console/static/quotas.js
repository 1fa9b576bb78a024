// Quota view: the limits of users, client ids and addresses, and the dialogs that set and remove them.

import { patchJson } from "./api.js";
import { ask, choice, field } from "./dialogs.js";
import { h } from "./dom.js";
import { bytes, count } from "./format.js";
import { headed, table } from "./parts.js";
import { polled } from "./polled.js";

const KEYS = [
  "producer_byte_rate",
  "consumer_byte_rate",
  "request_percentage",
  "controller_mutation_rate",
  "connection_creation_rate",
];
const TYPES = { user: "User", "client-id": "Client ID", ip: "Address" };
const DEFAULT = "(default)";

export function quotasView(redraw) {
  const asking = polled(redraw, () => "/v1/quotas");
  return {
    title: "Quotas",
    stop: asking.stop,
    draw: () => [
      headed("Quotas", h("button", { type: "button", onclick: () => set(asking.again) }, "Set a quota")),
      asking.mistake && h("p", { class: "error" }, asking.mistake),
      asking.found && list(asking.found.quotas, asking.again),
    ],
  };
}

function list(quotas, again) {
  return table({
    label: "Quotas",
    rows: quotas,
    key: ({ entity }) => JSON.stringify(entity),
    empty: "There are no quotas: every client may use as much as it can.",
    columns: [
      ...Object.entries(TYPES).map(([type, name]) => ({
        name,
        isHead: type === "user",
        of: ({ entity }) => (type in entity ? (entity[type] ?? DEFAULT) : ""),
      })),
      { name: "Limits, each on every broker", of: ({ limits }) => Object.entries(limits).map(shown).join(", ") },
      { name: "", of: (quota) => h("button", { type: "button", onclick: () => removeAll(quota, again) }, "Remove") },
    ],
  });
}

function shown([key, value]) {
  if (key.endsWith("_byte_rate")) return `${key} ${bytes(value)}/s`;
  return key === "request_percentage" ? `${key} ${value} %` : `${key} ${count(value)}/s`;
}

function nameOf(entity) {
  return Object.entries(entity)
    .map(([type, name]) => `${type} ${name ?? DEFAULT}`)
    .join(", ");
}

function set(done) {
  const names = { user: "", "client-id": "", ip: "" };
  let key = KEYS[0];
  let value = "";
  const entity = () =>
    Object.fromEntries(
      Object.entries(names)
        .filter(([, name]) => name !== "")
        .map(([type, name]) => [type, name === DEFAULT ? null : name]),
    );
  ask({
    title: "Set a quota",
    verb: () => "Set",
    isReady: () => Object.keys(entity()).length > 0 && Number(value) > 0,
    content: () => [
      h("p", null, `A user, a client id, both together, or an address. ${DEFAULT} stands for all without their own.`),
      ...Object.entries(TYPES).map(([type, name]) =>
        field(name, { name: type, spellcheck: "false" }, (text) => (names[type] = text)),
      ),
      choice(
        "Limit",
        KEYS.map((one) => [one, one]),
        key,
        (chosen) => (key = chosen),
      ),
      field("Value", { name: "value", inputmode: "decimal" }, (text) => (value = text)),
    ],
    act: async () => {
      await patchJson("/v1/quotas", { entity: entity(), limits: { [key]: Number(value) } });
      done?.();
      return `${key} of ${nameOf(entity())} was set.`;
    },
  });
}

function removeAll({ entity, limits }, done) {
  ask({
    title: `Remove the quota of ${nameOf(entity)}?`,
    verb: () => "Remove",
    isDangerous: () => true,
    content: () => h("p", null, "Its clients then have the next quota that holds for them, or none."),
    act: async () => {
      const gone = Object.fromEntries(Object.keys(limits).map((key) => [key, null]));
      await patchJson("/v1/quotas", { entity, limits: gone });
      done?.();
      return `The quota of ${nameOf(entity)} was removed.`;
    },
  });
}
