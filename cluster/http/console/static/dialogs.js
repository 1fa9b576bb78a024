// Dialogs that confirm an action, and the notice after its success. A dialog shows the broker's error in place.

import { Refusal, Silence } from "./api.js";
import { h, patch } from "./dom.js";
import { live } from "./live.js";

const NOTICE_MS = 8_000;
let clearing;

/** Show the result of an action for a few seconds. */
export function notice(sentence) {
  const place = document.getElementById("notice");
  place.textContent = sentence;
  clearTimeout(clearing);
  clearing = setTimeout(() => (place.textContent = ""), NOTICE_MS);
}

/** Open a dialog. `content` renders the body, again after each input; `verb` returns the label of the submit button.
 * `act` performs the action and returns the notice, or null to keep the dialog open. With `beginsAtOnce`, `act` is
 * read-only and runs when the dialog opens, without a click. */
export function ask({
  title,
  content,
  verb,
  act,
  isReady = () => true,
  isDangerous = () => false,
  beginsAtOnce = false,
}) {
  let error = null;
  let isBusy = false;
  const dialog = h("dialog", { "aria-labelledby": "asked" });
  dialog.addEventListener("close", () => dialog.remove());

  function draw() {
    const canAct = isReady() && !isBusy;
    patch(
      dialog,
      h(
        "form",
        { onsubmit: submit, oninput: typed, onchange: typed, autocomplete: "off" },
        h("h2", { id: "asked" }, title),
        h("div", { class: "content" }, content()),
        h("p", { class: "error", role: "alert" }, error ?? ""),
        h(
          "p",
          { class: "buttons" },
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
          h(
            "button",
            { type: "submit", class: isDangerous() ? "dangerous" : "main", disabled: !canAct },
            isBusy ? "…" : verb(),
          ),
        ),
      ),
    );
  }

  function typed() {
    error = null;
    draw();
  }

  async function submit(event) {
    event?.preventDefault();
    if (isBusy || !isReady()) return;
    isBusy = true;
    draw();
    try {
      const done = await act();
      error = null;
      if (done) {
        dialog.close();
        notice(done);
        live.refresh();
      }
    } catch (problem) {
      if (!(problem instanceof Refusal || problem instanceof Silence)) throw problem;
      error = problem.message;
    } finally {
      isBusy = false;
      draw();
    }
  }

  draw();
  document.body.append(dialog);
  dialog.showModal();
  if (beginsAtOnce) submit();
}

/** Open a dialog for an irreversible action: the user types the resource's name to confirm. */
export function askByName(name, { title, warning, verb, act }) {
  let typed = "";
  ask({
    title,
    act,
    verb: () => verb,
    isDangerous: () => true,
    isReady: () => typed === name,
    content: () => [
      h("p", null, warning),
      field(`Type ${name} to confirm`, { spellcheck: "false", autocapitalize: "off" }, (text) => (typed = text)),
    ],
  });
}

/** Return a labelled input. The element keeps the user's text; `oninput` receives it after each change. */
export function field(label, attributes, oninput, hint) {
  return h(
    "label",
    { class: "field", "data-key": label },
    h("span", null, label),
    h("input", { ...attributes, oninput: (event) => oninput(event.target.value) }),
    hint && h("small", { class: "faint" }, hint),
  );
}

/** Return a labelled select; `options` are [value, words] pairs. */
export function choice(label, options, chosen, onchange) {
  return h(
    "label",
    { class: "field", "data-key": label },
    h("span", null, label),
    h(
      "select",
      { onchange: (event) => onchange(event.target.value) },
      options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)),
    ),
  );
}
