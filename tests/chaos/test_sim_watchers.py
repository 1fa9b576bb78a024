"""Watchers of a simulated run: each detects its planted violation, and reports nothing in a sound cluster."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from log_fixture import LogFixture

from cordwood.chaos.sim.commands_fit import misfits
from cordwood.chaos.sim.counted import everybody_has, followers_are_as_counted
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.invariants import ObservedOffsets
from cordwood.chaos.sim.reopened_logs import MARKS_PATH, TOPICS_PATH, ReopenedLogs
from cordwood.chaos.sim.replicas import TOPIC_ID, ReplicaCluster, run_scenario
from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.metadata.commands import (
    AlterPartitions,
    BrokerId,
    DropReplicas,
    FenceBroker,
    IsrChange,
    RegisterBroker,
)
from cordwood.cluster.metadata.image import NO_LEADER, BrokerImage, Image, PartitionImage, TopicImage
from cordwood.cluster.proposals.topics import CONSUMER_OFFSETS
from cordwood.storage.flushed_offsets import FlushedOffsets
from cordwood.storage.producers import Producers
from cordwood.storage.state import LogState, write_checkpoint

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
BEFORE = PartitionImage((ONE, TWO, THREE), (ONE, TWO), ONE, leader_epoch=4, partition_epoch=7)
GROUP, PLACE = "group", ("flights", 0)


def found(cluster: ReplicaCluster) -> list[str]:
    return [kind for kind, _ in followers_are_as_counted(list(cluster.running.values()), cluster.metadata.newest)]


async def led(cluster: ReplicaCluster) -> tuple[Any, int]:
    """Commit one record. Return the leader's view and the id of a follower."""
    await cluster.produce("a")
    leader = cluster.leader()
    return cluster.replica(leader).leader.view, next(one for one in cluster.ids if one != leader)


def test_a_follower_that_lacks_what_its_leader_counts_on_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        view, follower = await led(cluster)
        assert found(cluster) == []
        view.followers[follower].flushed_end += 1
        assert found(cluster) == ["rule-5"]
        view.followers[follower].flushed_end -= 1

    run_scenario(scenario)


def test_a_follower_with_other_epochs_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        _, follower = await led(cluster)
        await cluster.produce("b")
        epochs = cluster.replica(follower).log.epochs
        epochs.assign(epochs.latest + 1, 1)
        assert found(cluster) == ["rule-4"]
        epochs.truncate_end(1)

    run_scenario(scenario)


def test_a_watermark_beyond_a_member_that_was_only_proposed_is_noticed() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        view, follower = await led(cluster)
        assert list(everybody_has("t/0", view, 1)) == []
        known = view.followers.pop(follower)
        assert [kind for kind, _ in everybody_has("t/0", view, 1)] == ["rule-5"]
        view.followers[follower] = known

    run_scenario(scenario)


def image(partition: PartitionImage) -> Image:
    brokers = {one: BrokerImage(one, UUID(int=one), 1, (), is_fenced=False) for one in (ONE, TWO, THREE)}
    topic = TopicImage(TOPIC_ID, "t", (partition,))
    return Image(brokers=brokers, topics_by_name={"t": topic}, topics_by_id={TOPIC_ID: topic})


@pytest.mark.parametrize(
    ("rules", "change"),
    [
        ([], {}),
        (["rule 6"], {"isr": ((ONE, 1), (TWO, 1), (THREE, 0))}),
        (["rule 7"], {"leader_epoch": 3}),
        (["rule 7"], {"partition_epoch": 6}),
    ],
)
def test_a_change_that_should_have_been_refused_is_noticed(rules: list[str], change: dict[str, Any]) -> None:
    members = ((ONE, 1), (TWO, 1), (THREE, 1))
    fitting = IsrChange(TOPIC_ID, 0, BEFORE.leader_epoch, BEFORE.partition_epoch, members)
    command = AlterPartitions(ONE, 1, (replace(fitting, **change),))
    after = image(replace(BEFORE, isr=(ONE, TWO, THREE), partition_epoch=8))
    assert [sentence[:6] for sentence in misfits(image(BEFORE), command, after)] == rules


def test_a_command_of_a_former_incarnation_is_noticed() -> None:
    assert [sentence[:6] for sentence in misfits(image(BEFORE), AlterPartitions(ONE, 0, ()), image(BEFORE))] == [
        "rule 6"
    ]


@pytest.mark.parametrize(("count", "isr"), [(1, (ONE, TWO)), (0, (ONE,))])
def test_a_lost_disk_that_is_counted_on_is_noticed(count: int, isr: tuple[BrokerId, ...]) -> None:
    before = image(BEFORE)
    known = replace(before.brokers[TWO], log_dirs=("a disk",))
    before = replace(before, brokers={**before.brokers, TWO: known})
    after = image(replace(BEFORE, isr=isr, leader_epoch=5, partition_epoch=8))
    registered = RegisterBroker(TWO, UUID(int=9), (), log_dirs=("another",))
    assert len(list(misfits(before, registered, after))) == count


@pytest.mark.parametrize(("count", "isr"), [(1, ()), (0, (ONE,))])
def test_a_last_member_that_leaves_by_its_silence_is_noticed(count: int, isr: tuple[BrokerId, ...]) -> None:
    after = image(replace(BEFORE, isr=isr, leader=NO_LEADER, leader_epoch=5, partition_epoch=8))
    assert len(list(misfits(image(BEFORE), FenceBroker(ONE, 1), after))) == count


@pytest.mark.parametrize(("count", "leader_epoch"), [(1, 4), (0, 5)])
def test_a_lost_replica_of_which_the_leader_does_not_learn_is_noticed(count: int, leader_epoch: int) -> None:
    dropped = DropReplicas(TWO, 1, ((TOPIC_ID, 0),), is_gone=False)
    after = image(replace(BEFORE, isr=(ONE,), leader_epoch=leader_epoch, partition_epoch=8))
    assert len(list(misfits(image(BEFORE), dropped, after))) == count


@dataclass
class Coordinating:
    """The group coordinator of a broker: it leads one partition of `__consumer_offsets` with one committed offset."""

    offset: int | None
    leads: bool = True
    broker_id: int = 1

    @property
    def groups(self) -> "Coordinating":
        return self

    @property
    def replicas(self) -> "Coordinating":
        return self

    group_id = GROUP

    def known(self) -> list[tuple[Any, dict[tuple[str, int], Any]]]:
        return [(self, {} if self.offset is None else {PLACE: self})]

    def get(self, _topic: str, _index: int) -> "Coordinating":
        return self

    def leads_in(self, _epoch: int) -> bool:
        return self.leads


@pytest.mark.parametrize(
    ("kinds", "epoch", "later"),
    [
        ([], 5, Coordinating(7)),
        (["rule-10"], 5, Coordinating(6)),
        (["rule-10"], 5, Coordinating(None)),
        ([], 5, Coordinating(6, leads=False)),
        ([], 4, Coordinating(6)),
    ],
)
def test_a_coordinator_that_knows_less_than_the_one_before_is_noticed(
    kinds: list[str], epoch: int, later: Coordinating
) -> None:
    assert partition_of(GROUP, 1) == 0

    def as_of(leader_epoch: int) -> Image:
        topic = TopicImage(TOPIC_ID, CONSUMER_OFFSETS, (replace(BEFORE, leader_epoch=leader_epoch),))
        return Image(topics_by_name={CONSUMER_OFFSETS: topic})

    reported = ObservedOffsets()
    assert list(reported.compare(Coordinating(7), as_of(4))) == []  # type: ignore[arg-type]
    assert [kind for kind, _ in reported.compare(later, as_of(epoch))] == kinds  # type: ignore[arg-type]


@dataclass
class Starting:
    """A broker that is about to open one log. Its start truncates the file `cuts`, if set."""

    log: LogFixture
    cuts: str = ""
    broker_id: int = 1
    topic_id: UUID = TOPIC_ID
    index: int = 0
    disk: SimulatedDisk = field(init=False)

    def __post_init__(self) -> None:
        self.disk = self.log.disk

    @property
    def replicas(self) -> list[Any]:
        return [_Held(self.topic_id, self.index, self.log.log)]

    def register(self) -> None:
        if self.cuts:
            self.disk.open(self.cuts).truncate(70)


@dataclass
class _Held:
    topic_id: UUID
    index: int
    log: Any


def stored(cuts: str = "") -> Starting:
    """Return a broker with three flushed batches. With `cuts`, its start truncates their segment."""
    log = LogFixture().append("a", "b", "c").flush()
    path = f"{TOPICS_PATH}{TOPIC_ID}/0/{0:020}.log"
    content = log.disk.content(log.path(0)).rstrip(b"\0")
    log.disk.make_directories(path.rpartition("/")[0])
    log.disk.open(path, create=True).pwrite([content], 0)
    marks = FlushedOffsets(log.disk.open(MARKS_PATH, create=True))
    marks.mark(TOPIC_ID, 0).note(3, 0)
    return Starting(log, path if cuts else "")


def test_opening_that_cuts_what_was_flushed_is_noticed() -> None:
    ReopenedLogs().open(stored())  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="rule 8: offset 1 was flushed"):
        ReopenedLogs().open(stored(cuts="two batches"))  # type: ignore[arg-type]


def test_a_producer_that_a_restart_forgot_is_noticed() -> None:
    before, after = LogFixture(), LogFixture().append("a").flush()
    before.send(0, "a")
    reopening = ReopenedLogs()
    reopening.went_down(Starting(before))  # type: ignore[arg-type]
    reopening.open(Starting(before))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="rule 9: producer 7"):
        reopening.open(Starting(after))  # type: ignore[arg-type]


def test_a_checkpoint_that_is_ahead_of_its_log_is_noticed() -> None:
    log = LogFixture()
    log.send(0, "a")
    directory = f"{TOPICS_PATH}{TOPIC_ID}/0"
    log.disk.make_directories(directory)
    write_checkpoint(log.disk, directory, LogState(0, 1, log.log.producers.snapshot(1), b""))
    ReopenedLogs().open(Starting(log))  # type: ignore[arg-type]
    assert len(Producers.decode(log.log.producers.snapshot(1).encode())) == 1
    write_checkpoint(log.disk, directory, LogState(0, 0, log.log.producers.snapshot(1), b""))
    with pytest.raises(AssertionError, match="rule 9: the checkpoint"):
        ReopenedLogs().open(Starting(log))  # type: ignore[arg-type]
