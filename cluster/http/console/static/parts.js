// Page components: heading with tools, list of facts, table, filter field and checkbox.

import { h } from "./dom.js";

/** Return the heading of a page. It can take the focus when a view opens, so that a screen reader starts there. */
export function headed(title, ...tools) {
  return h("div", { class: "head" }, h("h1", { tabindex: -1 }, title), h("span", { class: "tools" }, tools));
}

/** Return a list of names with their values. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts", "data-key": "facts" },
    pairs.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/** Return a table, or the text `empty` if there are no rows. `columns` are {name, of, isNumber, isHead, class}; `of`
 * returns the content of a row's cell, and `key` the row's unique key. Numbers are right-aligned. */
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

/** Return a search field that filters a table. `onchange` receives its text in lower case. */
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
