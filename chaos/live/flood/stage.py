"""A cluster with a bystander and a watch over its brokers, ready to be flooded."""

import contextlib
import math
import re
import time
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from cordwood.chaos.live.bystander import GROUP, MEMBERS_GROUP, LiveBystander
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.flood.aim import FloodTarget, Names
from cordwood.chaos.live.flood.attack import SentShots
from cordwood.chaos.live.flood.verdict import FloodVerdict, judge
from cordwood.chaos.live.flood.watch import BrokerWatch
from cordwood.chaos.live.process import wait_for

TOPIC = "bystander"
NAMES = Names(
    topics=tuple(f"flood-{number}" for number in range(4)),
    groups=tuple(f"flood-{number}" for number in range(4)),
    bystander_topic=TOPIC,
    bystander_groups=(GROUP, MEMBERS_GROUP),
)
FLOODED_PARTITIONS = 2
# Explicit configs: a flood may change the broker's defaults, and must not change the bystander's guarantees.
TOPIC_CONFIGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "flush.policy": "group",
    "max.message.bytes": "1048588",
    "segment.bytes": str(1 << 30),
    "message.timestamp.type": "CreateTime",
}
# Topics that clients create are no leak: with automatic creation off, only those created by name count as growth.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "imports.delay.ms": "0",
}
STEADY_S = 30.0
WARM_UP_S = 2.0
IMPORTED, IMPORTED_S = "event=imports.done", 60.0
"""What a broker logs once it has all modules, which count as memory at rest, and the longest wait for it."""
SETTLE_S = 3.0
METRIC = "cordwood_loop_lateness_seconds"
BUCKET = re.compile(rf'^{METRIC}_bucket{{le="([^"]+)"}} (\S+)$', re.MULTILINE)
ANSWER_S = 20.0


class FloodCluster:
    """A cluster that is started on entering the `with` block and killed on leaving it. Logs stay in `place`."""

    def __init__(self, place: Path, brokers: int = 1, settings: dict[str, str] | None = None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.cluster = LocalCluster(place, brokers, settings={**SETTINGS, **(settings or {})}, has_http=True)
        self._place = place

    def __enter__(self) -> Self:
        self.cluster.start()
        self.cluster.create_topic(TOPIC, 1, TOPIC_CONFIGS)
        for topic in NAMES.topics:
            self.cluster.create_topic(topic, FLOODED_PARTITIONS)
        self._watch = BrokerWatch(list(self.cluster.brokers.values()), self._place)
        self._watch.start()
        self._bystander = LiveBystander(self.cluster.bootstrap, TOPIC)
        self._bystander.start()
        self._is_judged = False
        self._bystander.wait_until_steady(STEADY_S)
        brokers = self.cluster.brokers.values()
        wait_for(lambda: all(IMPORTED in broker.output() for broker in brokers), IMPORTED_S)
        time.sleep(WARM_UP_S)
        self._watch.take_baseline()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.kill()
        if not self._is_judged:
            self._bystander.stop(is_broker_gone=True)
            self._watch.stop()

    def aims(self) -> tuple[FloodTarget, ...]:
        """Return an aim for each broker."""
        http_addresses = self.cluster.http_addresses
        return tuple(
            FloodTarget(broker.address, http_addresses[id_], NAMES) for id_, broker in self.cluster.brokers.items()
        )

    def is_broker_gone(self) -> bool:
        """Return whether a broker has ended by itself."""
        return any(broker.has_ended for broker in self.cluster.brokers.values())

    def verdict(self, sent: SentShots) -> FloodVerdict:
        """Wait until the brokers are idle, stop the bystander, and return the verdict."""
        if not self.is_broker_gone():
            time.sleep(SETTLE_S)
        late_s = self._lateness_s()
        observed = self._bystander.stop(is_broker_gone=self.is_broker_gone())
        self._watch.stop()
        self._is_judged = True
        return judge(observed, self._watch, sent, late_s)

    def _lateness_s(self) -> float:
        """Return the lateness of the latest of the brokers that still answer."""
        late_s = 0.0
        for http_address in self.cluster.http_addresses.values():
            with contextlib.suppress(OSError):
                late_s = max(late_s, lateness_s(http_address))
        return late_s


def lateness_s(http_address: str) -> float:
    """Return an upper bound of the lateness of all timers of a broker's event loop. Raises OSError.

    The lateness includes the time that the event loop waited for a processor.
    """
    with urlopen(f"http://{http_address}/metrics", timeout=ANSWER_S) as answer:
        return latest_in(answer.read().decode())


def latest_in(metrics: str) -> float:
    """Return the upper bound of the last bucket with a sample, in seconds; 0 where none has."""
    latest, seen = 0.0, 0.0
    for bound, count in BUCKET.findall(metrics):
        if float(count) > seen:
            latest, seen = math.inf if bound == "+Inf" else float(bound), float(count)
    return latest
