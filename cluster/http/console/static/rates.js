// Rates and quantiles from two samples of monotonic counters, and the history of a value. No I/O.

/** Return the rate per second; null if a sample is missing or the counter was reset between the samples. */
export function rate(before, now, elapsedMs) {
  const isKnown = before !== null && before !== undefined && now !== null && now !== undefined;
  return isKnown && now >= before && elapsedMs > 0 ? ((now - before) * 1000) / elapsedMs : null;
}

/** Return the records per second over all partitions. Both arguments map a partition to its high watermark. A partition
 * counts only if both know its high watermark and it did not decrease. */
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

/** Return the quantile `share` of the values that a histogram counted since `before`, by linear interpolation between
 * its bounds; null if it counted none. A value above the last bound counts as that bound. */
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

/** The points of a chart: pairs of time and value or null, limited to the last `spanMs`. */
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
