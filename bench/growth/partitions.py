"""Scaling with partitions on one broker: the cost of requests for one of them, and of the broker as a whole."""

import statistics

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.failover import failover_s
from cordwood.bench.growth.place import (
    REQUESTS,
    ROUNDS,
    BenchPlace,
    come_to_rest,
    cpu_us,
    create_topic_on,
    fetch_us,
    idle_percent,
    produce_us,
    resident_mb,
    spread,
    start_s,
)
from cordwood.chaos.live.broker_views import partitions_seen_by
from cordwood.chaos.live.process import BrokerProcess

COUNTS = (10, 100, 1000, 10_000)
SPREAD_RECORDS = 20_000
METADATA_REQUESTS = 5
IDLE_S = 45.0
"""Three of the broker's slowest regular rounds."""
PRODUCE_MAX, IDLE_PERCENT_MAX, RESTART_MAX_S = 1.2, 3.0, 5.0


def measure(place: BenchPlace) -> Area:
    """Measure each count. Counts are scaled too, so that a trial run is small."""
    area = Area("partitions", "partitions on one broker")
    counts = sorted({place.share(count, least=10) for count in COUNTS})
    with place.broker("reference") as reference:
        create_topic_on(reference.address, counts[0])
        spread(reference.address, counts[0], counts[0])
        for count in counts:
            place.say(f"  {count:,} partitions")
            with place.broker(f"partitions-{count}") as broker:
                _restarts(area, broker, count)
                come_to_rest([broker.pid])
                area.curve("memory", "MB", "A partition keeps its log, its role and an open file.").add(
                    count, resident_mb(broker)
                )
                area.curve("idle", "% of a core").add(count, idle_percent([broker.pid], place.seconds(IDLE_S)))
                _requests(area, place, broker, reference, count)
    for count in counts:
        place.say(f"  failover of {count:,} partitions")
        area.curve("failover", "s", "Each partition that was led has a new leader to get.").add(
            count, failover_s(place.directory / f"failover-{count}", count)
        )
    last = {curve.name: curve.points[-1][1] for curve in area.curves}
    most = f"{counts[-1]:,} partitions"
    area.promise(
        f"produce to one of {most}, against {counts[0]}", last["produce to one, against the fewest"], PRODUCE_MAX, "x"
    )
    area.promise(f"idle with {most}", last["idle"], IDLE_PERCENT_MAX, "% of a core")
    area.promise(f"restart with {most}, after SIGKILL", last["restart after SIGKILL"], RESTART_MAX_S, "s")
    area.promise(f"restart with {most}, after SIGTERM", last["restart after SIGTERM"], RESTART_MAX_S, "s")
    return area


def _fetch_us(address: str, pids: list[int], requests: int) -> float:
    return fetch_us(address, pids, range(100), requests, bytes_max=1024)


def _restarts(area: Area, broker: BrokerProcess, count: int) -> None:
    """Measure restarts after SIGKILL and SIGTERM, with a record in every partition."""
    create_topic_on(broker.address, count)
    spread(broker.address, count, count)
    why = "Every log is opened, and what was written last is read, before the first request is taken."
    broker.kill()
    area.curve("restart after SIGKILL", "s", why).add(count, start_s(broker))
    broker.stop()
    area.curve("restart after SIGTERM", "s", why).add(count, start_s(broker))


def _requests(area: Area, place: BenchPlace, broker: BrokerProcess, reference: BrokerProcess, count: int) -> None:
    """Send the same requests to this broker and the reference broker in turn, so that disturbances affect both."""
    requests = place.share(REQUESTS, least=200)
    both = (reference, broker)
    for what, ask in (("produce to one", produce_us), ("fetch from one", _fetch_us)):
        pairs = [[ask(each.address, [each.pid], requests) for each in both] for _ in range(ROUNDS)]
        area.curve(what, "µs of CPU").add(count, statistics.median(ours for _, ours in pairs))
        ratio = statistics.median(ours / few for few, ours in pairs)
        area.curve(f"{what}, against the fewest", "x").add(count, ratio)
    records = place.share(SPREAD_RECORDS, least=500)
    spread_us = cpu_us([broker.pid], records, lambda: spread(broker.address, count, records))
    why = "A group commit syncs each file that was written to: fewer records share one where they go to more logs."
    area.curve("produce, spread over all", "µs of CPU", why).add(count, spread_us)

    def metadata() -> None:
        for _ in range(METADATA_REQUESTS):
            partitions_seen_by(broker.address)

    metadata_ms = cpu_us([broker.pid], METADATA_REQUESTS, metadata) / 1000
    why = "The answer has a row for each partition."
    area.curve("metadata of all", "ms of CPU", why).add(count, metadata_ms)
