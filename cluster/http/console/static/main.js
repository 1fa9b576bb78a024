// Entry point of the console: the router from the URL hash to a view, and the redraw after each change.

import { archiveView } from "./archive.js";
import { balanceView } from "./balance.js";
import { brokerView, brokersView } from "./brokers.js";
import { cutsView } from "./cuts.js";
import { h, patch } from "./dom.js";
import { clock } from "./format.js";
import { groupView, groupsView } from "./groups.js";
import { live } from "./live.js";
import { movesView } from "./moves.js";
import { overview } from "./overview.js";
import { quotasView } from "./quotas.js";
import { topicView, topicsView } from "./topics.js";
import { transactionView, transactionsView } from "./transactions.js";
import { showUser } from "./user.js";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const links = [...document.querySelectorAll("header nav a")];
const broker = document.body.dataset.broker;

/** Views by the first segment of the URL hash. `one` applies if a name follows the segment. */
const VIEWS = {
  "": { all: overview },
  topics: { all: topicsView, one: topicView },
  groups: { all: groupsView, one: groupView },
  transactions: { all: transactionsView, one: transactionView },
  cuts: { all: cutsView },
  quotas: { all: quotasView },
  brokers: { all: brokersView, one: brokerView },
  balance: { all: balanceView },
  moves: { all: movesView },
  archive: { all: archiveView },
};

const FROM_BEFORE = "The page shows the last known state and is updated when the broker answers again.";

let view = null;
let shown = null;

function draw() {
  drawBanner();
  if (live.cluster === null) {
    patch(main, h("p", { class: "empty" }, live.refusal ?? "Loading …"));
    return;
  }
  if (view === null || shown !== location.hash) open();
  patch(main, h("div", { "data-key": shown }, view.draw()));
}

function open() {
  const isFirst = view === null;
  view?.stop?.();
  shown = location.hash;
  const [kind = "", ...names] = shown.replace(/^#\/?/, "").split("/").map(decoded);
  const { all, one } = VIEWS[kind] ?? VIEWS[""];
  const mine = (view = {});
  // Ignore a redraw request of a view that is not complete or no longer current.
  const redraw = () => view === mine && mine.draw && draw();
  Object.assign(mine, names.length > 0 && one ? one(redraw, ...names) : all(redraw));
  document.title = `${mine.title} · broker ${broker} · Cordwood`;
  for (const link of links) {
    const isHere = link.getAttribute("href") === (kind === "" ? "#/" : `#/${kind}`);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!isFirst) queueMicrotask(() => main.querySelector("h1")?.focus({ preventScroll: false }));
}

function drawBanner() {
  const since = live.silentSince;
  const sentence =
    since !== null
      ? `Broker ${broker}, which serves this page, has not answered since ${clock(since)}. ${FROM_BEFORE}`
      : live.refusal !== null
        ? `Broker ${broker}: ${live.refusal}`
        : live.pulse?.why_not_ready
          ? `Broker ${broker} is not ready: ${live.pulse.why_not_ready}`
          : null;
  patch(banner, sentence && h("p", null, h("span", { "aria-hidden": true }, "! "), sentence));
  main.classList.toggle("stale", since !== null || live.refusal !== null);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  // The URL hash selects the view: do not replace it with the link's target.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", draw);
live.addEventListener("change", draw);
showUser();
draw();
live.start();
