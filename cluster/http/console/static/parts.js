// What pages are made of: a heading with its tools, tables that say what is in them, and fields that narrow them down.

import { h } from "./dom.js";

/** The heading of a page. It takes the focus when the page is opened, so that a screen reader begins there. */
export function headed(title, ...tools) {
  return h("div", { class: "head" }, h("h1", { tabindex: -1 }, title), h("span", { class: "tools" }, tools));
}

/** Names with what they are worth. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts", "data-key": "facts" },
    pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/** Numbers at the right, and `empty` where there is nothing. `columns` are {name, of, isNumber, isHead, class}; `of` gives
 * what stands in a row's cell, `key` names the row. */
export function table({ label, columns, rows, key, empty }) {
  if (rows.length === 0) return h("p", { class: "empty", "data-key": `empty ${label}` }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label, "data-key": `table ${label}` },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((column) => h("th", { scope: "col", class: classOf(column) }, column.name)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { "data-key": key(row) },
            columns.map((column) =>
              h(column.isHead ? "th" : "td", { scope: column.isHead && "row", class: classOf(column) }, column.of(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A field that narrows a table down. */
export function filterField(label, onchange) {
  return h(
    "label",
    { class: "filter" },
    h("span", { class: "hidden" }, label),
    h("input", {
      type: "search",
      placeholder: label,
      spellcheck: "false",
      oninput: (event) => onchange(event.target.value.toLowerCase()),
    }),
  );
}

export function tick(label, isOn, onchange) {
  return h(
    "label",
    { class: "tick" },
    h("input", { type: "checkbox", checked: isOn, onchange: (event) => onchange(event.target.checked) }),
    label,
  );
}

function classOf({ isNumber, class: name }) {
  return [isNumber && "number", name].filter(Boolean).join(" ") || null;
}
