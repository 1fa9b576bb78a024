"""Replication throttle of this broker: rates and throttled replicas, as the metadata image has them."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, compress
from operator import attrgetter, is_not

from cordwood.cluster.config.rows import BrokerConfig, broker_config
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.config.throttle_settings import FOLLOWER_RATE, LEADER_RATE
from cordwood.cluster.config.topic_configs import FOLLOWER_REPLICAS, LEADER_REPLICAS, TOPIC_CONFIGS
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage, changed_topics
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.replication.follower_connection import FollowerLimits
from cordwood.replication.throttle import Charge, ReplicationThrottle
from cordwood.replication.token_bucket import UNLIMITED

_NONE: Mapping[int, Charge] = {}
_ADDING = attrgetter("adding")


def follower_limits(settings: Settings, quorum: Quorum) -> FollowerLimits:
    """Return the limits of followers outside the ISR, kept in step with the metadata."""
    limits = FollowerLimits(settings.replica_catchup_max_bytes_per_second)
    quorum.subscribe(ThrottleRates(settings, limits.throttle).follow)
    return limits


def charges(topic: TopicImage, index: int, partition: PartitionImage) -> Mapping[int, Charge]:
    """Return the replicas that a reassignment adds, with the rates that they are charged to."""
    if not partition.adding:
        return _NONE
    leader = Charge.LEADER if _is_throttled(topic, LEADER_REPLICAS, index, partition.leader) else Charge.NONE
    return {
        replica: leader | (Charge.FOLLOWER if _is_throttled(topic, FOLLOWER_REPLICAS, index, replica) else Charge.NONE)
        for replica in partition.adding
    }


def _is_throttled(topic: TopicImage, key: str, index: int, broker_id: int) -> bool:
    """Return whether the topic's list has this replica. Without a valid list every replica is throttled."""
    replicas = _replicas(key, topic.configs[key]) if key in topic.configs else None
    return replicas is None or "*" in replicas or f"{index}:{broker_id}" in replicas


@lru_cache(maxsize=16)
def _replicas(key: str, text: str) -> frozenset[str] | None:
    value = TOPIC_CONFIGS[key].type.read(text)
    return frozenset(value) if isinstance(value, tuple) else None


class ThrottleRates:
    """The rates of a throttle. A follower's rate is shared equally by the leaders that copy replicas to it."""

    def __init__(self, settings: Settings, throttle: ReplicationThrottle) -> None:
        self._settings, self._throttle = settings, throttle
        self._image = Image()
        self._copies: Counter[tuple[int, int]] = Counter()
        """Replicas that are copied, by leader and follower."""

    def follow(self, _old: Image, new: Image) -> None:
        """Apply a metadata change."""
        old, self._image = self._image, new
        pairs = set(self._copies)
        for before, after in changed_topics(old, new):
            self._count(before, after)
        if old.broker_configs is not new.broker_configs or self._copies.keys() != pairs:
            self._set_rates(new)

    def _count(self, before: TopicImage | None, after: TopicImage | None) -> None:
        for partitions, change in zip(_differing(before, after), (-1, 1), strict=True):
            for partition in filter(_ADDING, partitions):
                for pair in _copies(partition):
                    self._copies[pair] += change
                    if not self._copies[pair]:
                        del self._copies[pair]

    def _set_rates(self, image: Image) -> None:
        me, leaders = self._settings.node_id, Counter(follower for _, follower in self._copies)
        followers = {follower for leader, follower in self._copies if leader == me}
        of_all = image.configs_of_all_brokers
        shares = {
            follower: rate if rate >= UNLIMITED else rate / leaders[follower]
            for follower in followers
            for layers in (BrokerConfig(self._settings, image.configs_of_broker(follower), of_all),)
            for rate in (int(layers.number(FOLLOWER_RATE)),)
        }
        own_rate = int(broker_config(self._settings, image).number(LEADER_RATE))
        self._throttle.set_rates(own_rate, shares, asyncio.get_running_loop().time())


def _differing(
    before: TopicImage | None, after: TopicImage | None
) -> tuple[Iterator[PartitionImage], Iterator[PartitionImage]]:
    """Return the partitions that differ as they were, and as they are; none on the side where one does not exist."""
    old = () if before is None else before.partitions
    new = () if after is None else after.partitions
    # No Python bytecode per partition: one topic may have all of them.
    return (
        chain(compress(old, map(is_not, old, new)), old[len(new) :]),
        chain(compress(new, map(is_not, old, new)), new[len(old) :]),
    )


def _copies(partition: PartitionImage) -> Iterator[tuple[int, int]]:
    if partition.leader != NO_LEADER:
        yield from ((partition.leader, replica) for replica in partition.adding if replica not in partition.isr)
