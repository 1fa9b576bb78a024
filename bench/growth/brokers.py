"""Scaling with the number of brokers, one to five on this machine, with up to three replicas."""

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.failover import failover_s
from cordwood.bench.growth.place import (
    REQUESTS,
    SETTINGS,
    TOPIC,
    BenchPlace,
    create_topic,
    fetch_us,
    idle_percent,
    median_produce_us,
)
from cordwood.bench.machine import largest_resident_mb
from cordwood.chaos.live.cluster import LocalCluster

COUNTS = (1, 3, 4, 5)
"""Without two: two brokers have no majority when one fails."""
IDLE_S = 20.0
PARTITIONS = 30
OUTVOTE_FROM = 3
"""Fewer brokers have no majority left when one is killed."""


def measure(place: BenchPlace) -> Area:
    """Measure the cost of a request on all brokers together, and the cost of each broker without load."""
    area = Area("brokers", "brokers")
    for count in COUNTS:
        place.say(f"  {count} brokers" if count > 1 else "  1 broker")
        with LocalCluster(place.directory / f"brokers-{count}", count, settings=SETTINGS) as cluster:
            create_topic(cluster.bootstrap, PARTITIONS, cluster.replicas)
            cluster.wait_in_sync(partitions={TOPIC: PARTITIONS})
            pids = [broker.pid for broker in cluster.brokers.values()]
            leader = cluster.brokers[cluster.leader_of(TOPIC, 0)]
            requests = place.share(REQUESTS, least=200)
            why = "Up to three replicas are written and flushed, and they tell one another how far they are."
            area.curve("produce, on all brokers", "µs of CPU", why).add(
                count, median_produce_us(leader.address, pids, requests)
            )
            area.curve("fetch, on all brokers", "µs of CPU").add(
                count, fetch_us(leader.address, pids, range(100), requests, bytes_max=1024)
            )
            area.curve("memory of one", "MB").add(count, largest_resident_mb(pids))
            why = "Heartbeats go to every voter, and a quorum has its own; a broker by itself has neither."
            area.curve("idle, each", "% of a core", why).add(count, idle_percent(pids, place.seconds(IDLE_S)))
        if count >= OUTVOTE_FROM:
            area.curve("failover", "s").add(count, failover_s(place.directory / f"fail-{count}", PARTITIONS, count))
    return area
