// What follows from two looks at counts that only grow: rates and quantiles. Pure.

/** Per second; null where there are not two looks, or the count has begun anew meanwhile. */
export function rate(before, now, elapsedMs) {
  const isKnown = before !== null && before !== undefined && now !== null && now !== undefined;
  return isKnown && now >= before && elapsedMs > 0 ? ((now - before) * 1000) / elapsedMs : null;
}

/** Records per second over all partitions. Both arguments are maps from a partition to its high watermark; those that
 * are not in both say nothing. */
export function recordsRate(before, now, elapsedMs) {
  let records = 0;
  let isKnown = false;
  for (const [place, end] of now) {
    const begin = before.get(place);
    if (begin === undefined || end === null || begin === null || end < begin) continue;
    records += end - begin;
    isKnown = true;
  }
  return isKnown ? rate(0, records, elapsedMs) : null;
}

/** Of the numbers that a histogram has got since `before`, the one that `share` of them are not above, by straight
 * lines between its bounds. Null where it has got none. What lies above the last bound is taken for that bound. */
export function quantile(share, before, now) {
  const total = now.count - before.count;
  if (total <= 0) return null;
  const wanted = share * total;
  let below = 0;
  let lower = 0;
  for (const [at, bound] of now.bounds.entries()) {
    const upTo = now.counts[at] - before.counts[at];
    if (upTo >= wanted) return lower + (bound - lower) * ((wanted - below) / (upTo - below));
    below = upTo;
    lower = bound;
  }
  return lower;
}

/** What a chart shows: moments with a number or null, of the last while only. */
export class History {
  constructor(spanMs) {
    this.spanMs = spanMs;
    this.points = [];
  }

  add(timeMs, number) {
    this.points.push([timeMs, number]);
    while (this.points[0][0] < timeMs - this.spanMs) this.points.shift();
  }

  get newest() {
    return this.points.at(-1)?.[1] ?? null;
  }
}
