// Config table of a topic or a broker: the value and source of each config, and the dialog that changes it.

import { Refusal, Silence, get, patchJson } from "./api.js";
import { ask, field } from "./dialogs.js";
import { h } from "./dom.js";
import { UNKNOWN } from "./format.js";
import { filterField, table, tick } from "./parts.js";

const SOURCES = {
  dynamic_topic: "this topic",
  dynamic_broker: "this broker, changed",
  dynamic_all_brokers: "all brokers, changed",
  static_broker: "configuration file",
  default: "default",
};

/** Load the configs at the API path `path`; `whose` is the owner's name in titles. `draw` renders the current state. */
export function configsOf(redraw, path, whose) {
  let configs = null;
  let mistake = null;
  let filter = "";
  let onlySet = false;

  async function load() {
    try {
      ({ configs } = await get(path));
      mistake = null;
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof Silence)) throw error;
      mistake = error.message;
    }
    redraw();
  }

  function draw() {
    const shown = (configs ?? []).filter(
      ({ name, source }) => name.includes(filter) && !(onlySet && source === "default"),
    );
    return h(
      "section",
      { "aria-label": "Configs", "data-key": "configs" },
      h(
        "div",
        { class: "head" },
        h("h2", null, "Configs"),
        h(
          "span",
          { class: "tools" },
          filterField("Filter configs", (text) => narrow(() => (filter = text))),
          tick("only what was set", onlySet, (isOn) => narrow(() => (onlySet = isOn))),
        ),
      ),
      mistake && h("p", { class: "error", role: "alert" }, mistake, " ", h("button", { onclick: load }, "Try again")),
      configs &&
        table({
          label: `Configs of ${whose}`,
          rows: shown,
          key: (config) => config.name,
          empty: "No config matches: change the filter.",
          columns: [
            { name: "Name", isHead: true, of: (config) => h("span", { title: config.documentation }, config.name) },
            { name: "Value", class: "value", of: (config) => worth(config) },
            {
              name: "From",
              of: (config) =>
                h("span", { class: config.source === "default" && "faint" }, SOURCES[config.source] ?? config.source),
            },
            {
              name: h("span", { class: "hidden" }, "Change"),
              of: (config) =>
                !config.is_read_only &&
                h(
                  "button",
                  { "aria-label": `Change ${config.name}`, onclick: () => change(config, path, whose, load) },
                  "Change",
                ),
            },
          ],
        }),
    );
  }

  function narrow(choose) {
    choose();
    redraw();
  }

  load();
  return { draw };
}

function worth(config) {
  if (config.is_secret) return h("span", { class: "faint" }, "secret");
  return config.value === null ? h("span", { class: "faint" }, UNKNOWN) : config.value;
}

function change(config, path, whose, done) {
  let value = config.value ?? "";
  ask({
    title: `${config.name} of ${whose}`,
    verb: () => (value === "" ? "Reset to the default" : "Set"),
    content: () => [
      config.documentation && h("p", null, config.documentation),
      field(
        `Value (${config.type})`,
        { name: "value", value: config.value ?? "", spellcheck: "false", autofocus: true },
        (text) => (value = text),
        `Empty: the default${config.default === null ? "" : `, ${config.default}`}.`,
      ),
    ],
    act: async () => {
      await patchJson(path, { configs: { [config.name]: value === "" ? null : value } });
      done();
      return `${config.name} of ${whose} is ${value === "" ? "reset to its default" : value}.`;
    },
  });
}
