// Questions before something is done, and a notice afterwards. What the broker refuses is told where it was asked for.

import { Refusal, Silence } from "./api.js";
import { h, patch } from "./dom.js";
import { live } from "./live.js";

const NOTICE_MS = 8_000;
let clearing;

/** Say what has been done. */
export function notice(sentence) {
  const place = document.getElementById("notice");
  place.textContent = sentence;
  clearTimeout(clearing);
  clearing = setTimeout(() => (place.textContent = ""), NOTICE_MS);
}

/** A dialog. `content` draws what is asked, again whenever something is typed; `verb` is what its button says.
 * `act` does it, and gives the sentence of the notice, or nothing where there is more to ask; with `beginsAtOnce` it is
 * only to find something out, and nobody has to press the button first. */
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

/** A dialog about what cannot be undone: the name of what it is done to has to be typed. */
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

/** A field with its label. The reader's text stays in the element; `oninput` gets it. */
export function field(label, attributes, oninput, hint) {
  return h(
    "label",
    { class: "field", "data-key": label },
    h("span", null, label),
    h("input", { ...attributes, oninput: (event) => oninput(event.target.value) }),
    hint && h("small", { class: "faint" }, hint),
  );
}

/** A choice among [value, words]. */
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
