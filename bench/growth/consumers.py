"""Scaling with consumers at the end of one partition: end-to-end latency at a steady produce rate."""

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import BenchPlace, allow_many_files, cpu_seconds, create_topic
from cordwood.bench.growth.tail_load import tail
from cordwood.chaos.live.report import quantile

COUNTS = (1, 10, 100, 500)
RATE = 1000
"""Records a second, each in a request of its own."""
SECONDS = 15.0
P99_MAX_MS = 100.0


def measure(place: BenchPlace) -> Area:
    """Measure each count. Consumers and producer share one process, so that the broker has a core of two to itself."""
    allow_many_files()
    area = Area("consumers", "consumers of one partition")
    for count in COUNTS:
        place.say(f"  {count:,} consumers")
        with place.broker(f"consumers-{count}") as broker:
            create_topic(broker.address, 1)
            tail(broker.address, count, RATE, 1.0)
            before = cpu_seconds([broker.pid])
            tailed = tail(broker.address, count, RATE, place.seconds(SECONDS))
            cpu_s = cpu_seconds([broker.pid]) - before
        why = "One loop serves them in turn: each waits for the others' answers to be sent."
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            area.curve(f"end to end, {name}", "ms", why).add(count, quantile(tailed.latencies_ms, share))
        area.curve("broker, for each record that a consumer got", "µs of CPU").add(
            count, cpu_s / tailed.delivered * 1e6
        )
        why = "Every consumer is to be answered."
        area.curve("broker", "% of a core", why).add(count, cpu_s / tailed.seconds * 100)
        if tailed.missing:
            area.notes.append(f"{tailed.missing:,} of the records did not reach all of {count} consumers in time.")
    area.promise(f"end to end p99, {COUNTS[-1]} consumers", quantile(tailed.latencies_ms, 0.99), P99_MAX_MS, "ms")
    area.promise(f"records that did not arrive, {COUNTS[-1]} consumers", tailed.missing, 0, "records")
    return area
