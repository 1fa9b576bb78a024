"""Metadata events of this broker: elections, ISR changes and fencings, counted for metrics and logged.

Each broker reports its own state and the partitions that it leads, so that the counts of all brokers add up. The active
controller reports events of the whole cluster.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from cordwood.cluster.metadata.changes import Cause, PartitionChange, cause_of, changed_partitions
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import EMPTY, NO_LEADER, BrokerImage, Image, TopicImage, changed_topics
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.storage.steps import Steps, run_step

LINES_PER_CHANGE_MAX = 10
"""Largest number of lines for one change; above it one line has the number of partitions."""

PARTITIONS_PER_PART = 256
"""Partitions counted in one step of the event loop."""

_events = structlog.get_logger("metadata")


class MetadataEventLog:
    """Counters and log lines of the metadata changes since this broker has loaded the metadata."""

    def __init__(self, quorum: Quorum, broker_id: BrokerId) -> None:
        self._quorum, self._broker_id = quorum, broker_id
        self.elections: Counter[Cause] = Counter()
        """Elections of this broker as leader of a partition, by cause."""
        self.leaderships_lost = 0
        self.isr_shrinks = self.isr_expansions = 0
        """ISR changes of partitions that this broker leads."""
        self.fencings = self.controllerships = 0
        """Numbers of times that this broker was fenced, and that it became the active controller."""
        self._unfinished: deque[Steps[None]] = deque()
        """Changes of which some partitions are counted."""

    def begin(self) -> None:
        """Subscribe to the metadata and to the controller's leadership."""
        self._quorum.subscribe(self.follow)
        self._quorum.on_leadership(self._leadership_changed)

    def follow(self, old: Image, new: Image) -> None:
        """Count and log a change of the image: a listener of the quorum."""
        if old.topics_by_id is not new.topics_by_id:
            self._unfinished.append(self._follow_partitions(changed_partitions(old, new, self._broker_id), new))
            if len(self._unfinished) == 1:
                self._run_step()
        if old.brokers is not new.brokers:
            self._follow_broker(old.brokers.get(self._broker_id), new.brokers.get(self._broker_id))
        if self._quorum.is_leader:
            _log_cluster(old, new)

    def _run_step(self) -> None:
        """Run a step of the first change, and schedule the rest."""
        if run_step(self._unfinished[0]):
            self._unfinished.popleft()
        if self._unfinished:
            asyncio.get_running_loop().call_soon(self._run_step)

    def _follow_partitions(self, changes: Iterable[PartitionChange], new: Image) -> Steps[None]:
        gained, lost = _Lines("partitions.led"), _Lines("partitions.led_no_more")
        for number, change in enumerate(changes, 1):
            if number % PARTITIONS_PER_PART == 0:
                yield
            before, after = change.before, change.after
            if after.leader == self._broker_id:
                self.isr_shrinks += len(after.isr) < len(before.isr)
                self.isr_expansions += len(after.isr) > len(before.isr)
                if change.has_new_leader:
                    cause = cause_of(change, new)
                    self.elections[cause] += 1
                    gained.add(_log_gained, change, cause)
            else:
                self.leaderships_lost += 1
                lost.add(_log_lost, change)
        gained.log()
        lost.log()

    def _follow_broker(self, before: BrokerImage | None, after: BrokerImage | None) -> None:
        if before is None or after is None or before.is_fenced == after.is_fenced:
            return
        self.fencings += after.is_fenced
        if after.is_fenced:
            _events.warning("broker.is_fenced", broker=self._broker_id, epoch=after.epoch)
        else:
            _events.info("broker.is_unfenced", broker=self._broker_id, epoch=after.epoch)

    def _leadership_changed(self, is_leader: bool) -> None:
        self.controllerships += is_leader


class _Lines:
    """The log lines of one change, or a single one of the name `together` if they are too many."""

    def __init__(self, together: str) -> None:
        self._together, self._count = together, 0
        self._lines: list[partial[None]] = []

    def add(self, log: Callable[..., None], *arguments: object) -> None:
        self._count += 1
        if self._count <= LINES_PER_CHANGE_MAX:
            self._lines.append(partial(log, *arguments))

    def log(self) -> None:
        if self._count > LINES_PER_CHANGE_MAX:
            _events.info(self._together, partitions=self._count)
            return
        for line in self._lines:
            line()


def _log_gained(change: PartitionChange, cause: Cause) -> None:
    after = change.after
    log = _events.warning if cause is Cause.UNCLEAN else _events.info
    log(
        "partition.led",
        topic=change.topic,
        partition=change.index,
        leader_epoch=after.leader_epoch,
        isr=",".join(map(str, after.isr)),
        cause=cause.value,
    )


def _log_lost(change: PartitionChange) -> None:
    leader = None if change.after.leader == NO_LEADER else change.after.leader
    _events.info("partition.led_no_more", topic=change.topic, partition=change.index, leader=leader)


def _log_cluster(old: Image, new: Image) -> None:
    for before, after in changed_topics(old, new):
        _log_topic(before, after)
    if old.brokers is not new.brokers:
        for broker in new.brokers.values():
            known = old.brokers.get(broker.id)
            if known is None or known.epoch != broker.epoch:
                _events.info("broker.registered", broker=broker.id, epoch=broker.epoch, rack=broker.rack)
        for broker_id in old.brokers.keys() - new.brokers.keys():
            _events.info("broker.unregistered", broker=broker_id)
    if old.broker_configs is not new.broker_configs:
        for name in sorted(old.broker_configs.keys() | new.broker_configs.keys()):
            _log_configs(
                "broker.configured",
                old.broker_configs.get(name, EMPTY),
                new.broker_configs.get(name, EMPTY),
                broker=name or "all",
            )


def _log_configs(event: str, before: Mapping[str, str], after: Mapping[str, str], **whose: str) -> None:
    """Log the changed keys without their values, some of which are secret."""
    keys = {key for key, _ in before.items() ^ after.items()}
    if keys:
        _events.info(event, **whose, keys=",".join(sorted(keys)))


def _log_topic(before: TopicImage | None, after: TopicImage | None) -> None:
    if after is None:
        assert before is not None, "a change has two sides"
        _events.info("topic.deleted", topic=before.name, id=str(before.id))
    elif before is None:
        _events.info("topic.created", topic=after.name, id=str(after.id), partitions=len(after.partitions))
    else:
        if len(after.partitions) != len(before.partitions):
            _events.info("topic.grown", topic=after.name, partitions=len(after.partitions))
        _log_configs("topic.configured", before.configs, after.configs, topic=after.name)
