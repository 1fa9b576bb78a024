// Polling loop of the console: the cluster state as this broker knows it, and the history of the last minutes.

import { Refusal, Silence, at, get } from "./api.js";
import { repeat } from "./pace.js";
import { History, quantile, rate, recordsRate } from "./rates.js";

const SPAN_MS = 5 * 60_000;
const INTERVAL_MS = 1_000;
const GROUPS_INTERVAL_MS = 3_000;
const ANSWER_MS = 4_000;
const POSITIONS_ANSWER_MS = 20_000;
const GROUPS_MAX = 30;

/** The polled state. Dispatches "change" after each cluster poll and each successful poll of the consumer groups. */
class Live extends EventTarget {
  cluster = null;
  /** Partitions without offsets. Offsets take longer to collect: `positions` has them. */
  partitions = [];
  positions = new Map();
  pulse = null;
  groups = [];
  groupsUnansweredBy = [];
  silentSince = null;
  /** The error message of a broker that responds but cannot return the cluster state. */
  refusal = null;
  showsInternal = false;
  records = new History(SPAN_MS);
  produced = new History(SPAN_MS);
  fetched = new History(SPAN_MS);
  produceMedian = new History(SPAN_MS);
  produceTail = new History(SPAN_MS);
  flushTail = new History(SPAN_MS);
  lags = new Map();
  #watermarks = null;

  start() {
    this.refresh = repeat(() => this.#asked(() => this.#look()), INTERVAL_MS);
    repeat(() => this.#quietly(() => this.#measure()), INTERVAL_MS);
    this.refreshGroups = repeat(() => this.#quietly(() => this.#lookAtGroups()), GROUPS_INTERVAL_MS);
  }

  position(partition) {
    return this.positions.get(placeOf(partition)) ?? partition;
  }

  showInternal(isWanted) {
    this.showsInternal = isWanted;
    this.refresh();
  }

  /** Run `look` and record its outcome in `silentSince` and `refusal` for the banner. Return true on success. */
  async #asked(look) {
    try {
      await look();
      this.silentSince = this.refusal = null;
      return true;
    } catch (error) {
      if (!(error instanceof Silence || error instanceof Refusal)) throw error;
      this.refusal = error instanceof Refusal ? error.message : null;
      this.silentSince = error instanceof Silence ? (this.silentSince ?? Date.now()) : null;
      if (this.silentSince !== null) this.#forgetPulse();
      return false;
    } finally {
      this.dispatchEvent(new Event("change"));
    }
  }

  /** Run `look` without recording its failure: the poll in `#asked` already shows an unreachable broker. */
  async #quietly(look) {
    try {
      await look();
      return true;
    } catch (error) {
      if (!(error instanceof Silence || error instanceof Refusal)) throw error;
      return false;
    }
  }

  async #look() {
    const internal = this.showsInternal ? "?internal=true" : "";
    const [cluster, { partitions }, pulse] = await Promise.all([
      get("/v1/cluster", ANSWER_MS),
      get(`/v1/partitions${internal}`, ANSWER_MS),
      get("/console/pulse", ANSWER_MS),
    ]);
    this.#feel(pulse, Date.now());
    Object.assign(this, { cluster, partitions });
  }

  #feel(pulse, now) {
    const before = this.pulse;
    this.pulse = { ...pulse, time: now };
    // A restarted broker resets its counters.
    if (before === null || before.produce_seconds.count > pulse.produce_seconds.count) return;
    const elapsedMs = now - before.time;
    this.produced.add(now, rate(before.produced_bytes, pulse.produced_bytes, elapsedMs));
    this.fetched.add(now, rate(before.fetched_bytes, pulse.fetched_bytes, elapsedMs));
    this.produceMedian.add(now, quantile(0.5, before.produce_seconds, pulse.produce_seconds));
    this.produceTail.add(now, quantile(0.99, before.produce_seconds, pulse.produce_seconds));
    this.flushTail.add(now, quantile(0.99, before.flush_seconds, pulse.flush_seconds));
  }

  #forgetPulse() {
    this.pulse = null;
    const now = Date.now();
    for (const history of [this.produced, this.fetched, this.produceMedian, this.produceTail, this.flushTail]) {
      history.add(now, null);
    }
  }

  /** Fetch the offsets from all brokers, in a separate loop: a broker that hangs must not delay the cluster poll. */
  async #measure() {
    const { partitions } = await get("/v1/partitions?offsets=true&internal=true", POSITIONS_ANSWER_MS);
    const now = Date.now();
    const watermarks = new Map(partitions.map((partition) => [placeOf(partition), partition.high_watermark]));
    if (this.#watermarks !== null) {
      this.records.add(now, recordsRate(this.#watermarks.ends, watermarks, now - this.#watermarks.time));
    }
    this.#watermarks = { ends: watermarks, time: now };
    this.positions = new Map(partitions.map((partition) => [placeOf(partition), partition]));
  }

  async #lookAtGroups() {
    const { groups, unanswered_by } = await get("/v1/groups");
    for (const row of groups.slice(0, GROUPS_MAX)) {
      Object.assign(row, await this.#describedGroup(row.group));
    }
    this.groups = groups;
    this.groupsUnansweredBy = unanswered_by;
    for (const name of this.lags.keys()) {
      if (!groups.some((row) => row.group === name)) this.lags.delete(name);
    }
    this.dispatchEvent(new Event("change"));
  }

  async #describedGroup(name) {
    try {
      const described = await get(at("groups", name));
      if (!this.lags.has(name)) this.lags.set(name, new History(SPAN_MS));
      this.lags.get(name).add(Date.now(), described.lag_records);
      return described;
    } catch (error) {
      if (error instanceof Refusal) return { refusal: error.message };
      throw error;
    }
  }
}

export function placeOf({ topic, partition }) {
  return `${topic}/${partition}`;
}

export const live = new Live();
