// Line charts of the last minutes, and sparklines for table cells. The line has a gap where values are unknown.

import { h, s } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 600;
const HEIGHT = 100;
const GAP_MS = 15_000;
const SPAN_MIN_MS = 60_000;

/** Pointer position over each chart, by chart title, as a share of the width. */
const pointed = new Map();

/** Return a chart. `series` are {name, kind, history}; `unit` formats a number; `empty` is the text without values. */
export function chart({ title, note, series, unit, empty }, now = Date.now()) {
  const top = topOf(series);
  const spanMs = spanOf(series, now);
  const newest = series.map(({ name, history }) => `${name} ${unit(history.newest)}`);
  const place = pointed.get(title);
  const seenAt = place === undefined ? now : now - spanMs * (1 - place);
  return h(
    "figure",
    { class: "chart", "data-key": `chart ${title}` },
    h("figcaption", null, h("b", null, title), note && h("span", { class: "faint" }, note)),
    h(
      "p",
      { class: "reading" },
      series.map(({ name, kind, history }) =>
        h(
          "span",
          { class: kind },
          h("i", { class: "swatch" }),
          name,
          " ",
          h("b", null, unit(valueAt(history, seenAt, place === undefined))),
        ),
      ),
      place !== undefined && h("span", { class: "faint" }, clock(seenAt)),
    ),
    h(
      "div",
      { class: "plot" },
      s(
        "svg",
        {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": `${title} now: ${newest.join(", ")}`,
          onpointermove: (event) => pointed.set(title, share(event)),
          onpointerleave: () => pointed.delete(title),
        },
        [0, 0.5].map((height) =>
          s("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * height, y2: HEIGHT * height }),
        ),
        series.map(({ kind, history }) => s("path", { class: kind, d: path(history.points, now, spanMs, top) })),
        place !== undefined && s("line", { class: "cursor", x1: place * WIDTH, x2: place * WIDTH, y1: 0, y2: HEIGHT }),
      ),
      h("span", { class: "top" }, unit(top)),
      series.every(({ history }) => history.points.every(([, number]) => number === null)) &&
        h("span", { class: "empty" }, empty),
    ),
    h("p", { class: "axis" }, h("span", null, ago(spanMs)), h("span", null, "now")),
  );
}

/** Return a chart without axes that fits a table cell. */
export function sparkline(history, label, now = Date.now()) {
  const top = topOf([{ history }]);
  return s(
    "svg",
    {
      class: "sparkline",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    s("path", { class: "main", d: path(history.points, now, history.spanMs, top) }),
  );
}

/** Return the time span of the known points, within limits, so that a new page shows no mostly empty chart. */
function spanOf(series, now) {
  const begun = Math.min(...series.map(({ history }) => history.points[0]?.[0] ?? now));
  return Math.min(Math.max(now - begun, SPAN_MIN_MS), series[0].history.spanMs);
}

function ago(spanMs) {
  const seconds = Math.round(spanMs / 1000);
  return seconds < 120 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ago`;
}

/** Return the smallest round number that is not below any value. */
function topOf(series) {
  const most = Math.max(0, ...series.flatMap(({ history }) => history.points.map(([, number]) => number ?? 0)));
  if (most === 0) return 1;
  const step = 10 ** Math.floor(Math.log10(most));
  return step * [1, 1.5, 2, 3, 5, 7.5, 10].find((times) => times * step >= most);
}

function path(points, now, spanMs, top) {
  let drawn = "";
  let before = null;
  for (const [time, number] of points) {
    if (number !== null) {
      const place = `${(WIDTH * (1 - (now - time) / spanMs)).toFixed(1)} ${(HEIGHT * (1 - number / top)).toFixed(1)}`;
      // A zero-length line draws an isolated point as a dot.
      drawn += before === null || time - before > GAP_MS ? `M${place}h0` : `L${place}`;
    }
    before = number === null ? null : time;
  }
  return drawn;
}

function valueAt(history, time, isNewest) {
  if (isNewest) return history.newest;
  const nearest = history.points.reduce(
    (best, point) => (best === null || Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best),
    null,
  );
  return nearest === null || Math.abs(nearest[0] - time) > GAP_MS ? null : nearest[1];
}

function share(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
}
