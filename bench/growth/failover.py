"""Failover time of the partitions that a killed broker led."""

import time
from pathlib import Path

from cordwood.bench.growth.place import SETTINGS, TOPIC, create_topic
from cordwood.chaos.live.broker_views import BrokerUnreachable, PartitionView, partitions_seen_by
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.process import wait_for

BROKERS = 3
FAILOVER_S = 120.0
IN_SYNC_S = 180.0


class NotLedAgain(Exception):
    """Partitions had no leader within FAILOVER_S."""


def failover_s(directory: Path, partitions: int, brokers: int = BROKERS) -> float:
    """Return the seconds from the SIGKILL of a broker until every other sees a leader for all partitions that it led.

    Raises NotLedAgain, NotInTime, BrokerEnded, KafkaException.
    """
    with LocalCluster(directory, brokers, settings=SETTINGS) as cluster:
        create_topic(cluster.bootstrap, partitions, cluster.replicas)
        cluster.wait_in_sync(IN_SYNC_S, {TOPIC: partitions})
        victim = cluster.ids[0]
        led = cluster.led_by(victim, TOPIC)
        others = [cluster.brokers[id_].address for id_ in cluster.ids if id_ != victim]
        killed_at = time.perf_counter()
        cluster.brokers[victim].kill()
        if not wait_for(lambda: all(_leads_all(address, led, victim) for address in others), FAILOVER_S):
            raise NotLedAgain(f"not all of {len(led):,} partitions were led again within {FAILOVER_S:.0f} s")
        return time.perf_counter() - killed_at


def _leads_all(address: str, led: set[int], victim: int) -> bool:
    """Return whether this broker sees a live leader of each of the partitions."""
    try:
        views: tuple[PartitionView, ...] = partitions_seen_by(address)
    except BrokerUnreachable:
        return False
    return not any(view.leader in (-1, victim) for view in views if view.topic == TOPIC and view.index in led)
