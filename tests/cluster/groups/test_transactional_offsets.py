"""Offsets committed in transactions (KIP-447): pending until the marker, fenced by member, kept by compaction."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from coordinator_fixture import GROUP, PRODUCER, CoordinatorFixture
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from offsets_in_memory import BATCHES_PER_READ
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

OTHER = ProducerIdAndEpoch(8, 0)
PLACE = TopicPartition("flights", 0)
DAY_MS = 24 * 3_600_000


def tell(story: Callable[[CoordinatorFixture], Awaitable[None]], brokers: int = 1, **settings: int) -> None:
    async def reported() -> None:
        groups = CoordinatorFixture(brokers, **settings)
        await groups.coordinator.place(GROUP)
        groups.tell_all()
        await story(groups)
        await asyncio.gather(*(coordinator.close() for coordinator in groups.coordinators.values()))

    run(reported())


async def code_of(work: Awaitable[object]) -> ErrorCode:
    try:
        await work
    except Refused as refusal:
        return refusal.code
    return ErrorCode.none


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_counts_from_the_marker_of_its_transaction_on(is_commit: bool) -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        await groups.commit_in_transaction(10)
        assert (groups.offsets(), groups.pending()) == ({PLACE: 5}, {PLACE})
        groups.end(is_commit=is_commit)
        assert (groups.offsets(), groups.pending()) == ({PLACE: 10 if is_commit else 5}, set())

    tell(story)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_coordinator_finds_what_is_pending_and_what_was_decided(is_commit: bool) -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        await groups.commit_in_transaction(10)
        await groups.restart()
        assert (groups.offsets(), groups.pending()) == ({PLACE: 5}, {PLACE})
        groups.end(is_commit=is_commit)
        expected = {PLACE: 10 if is_commit else 5}
        assert (groups.offsets(), groups.pending()) == (expected, set())
        await groups.restart()
        assert (groups.offsets(), groups.pending()) == (expected, set())

    tell(story)


def test_the_first_append_alone_is_verified() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        place = TopicPartition("__consumer_offsets", groups.partition)
        await groups.commit_in_transaction(10)
        await groups.commit_in_transaction(11)
        assert groups.verified == [place]
        groups.end()
        await groups.commit_in_transaction(12)
        assert groups.verified == [place] * 2
        groups.end()
        assert groups.offsets() == {PLACE: 12}

    tell(story)


def test_nothing_is_written_that_the_transaction_coordinator_does_not_know() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        async def refuse(_: TopicPartition) -> None:
            raise Refused(ErrorCode.invalid_txn_state)

        commits = {PLACE: Commit(10, -1, "")}
        work = groups.coordinator.commit_in_transaction(GROUP, MemberIdentity(), PRODUCER, commits, refuse)
        assert await code_of(work) is ErrorCode.invalid_txn_state
        assert groups.topic.records(groups.partition) == []
        assert groups.coordinator.group(GROUP) is None

    tell(story)


def test_a_coordinator_that_is_replaced_during_the_verification_writes_nothing() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        async def replace(_: TopicPartition) -> None:
            groups.elect(2)
            groups.elect(1)
            await groups.loaded()

        commits = {PLACE: Commit(10, -1, "")}
        work = groups.coordinator.commit_in_transaction(GROUP, MemberIdentity(), PRODUCER, commits, replace)
        assert await code_of(work) is ErrorCode.not_coordinator
        assert groups.topic.records(groups.partition) == []

    tell(story, brokers=2)


def test_a_fenced_producer_commits_nothing() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10, ProducerIdAndEpoch(7, 3))
        assert await code_of(groups.commit_in_transaction(11)) is ErrorCode.invalid_producer_epoch
        groups.end(ProducerIdAndEpoch(7, 3))
        assert groups.offsets() == {PLACE: 10}

    tell(story)


def test_a_later_commit_outside_the_transaction_stays() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        await groups.commit(6)
        assert (groups.offsets(), groups.pending()) == ({PLACE: 6}, {PLACE})
        groups.end()
        assert groups.offsets() == {PLACE: 6}
        await groups.restart()
        assert groups.offsets() == {PLACE: 6}

    tell(story)


def test_of_two_transactions_the_later_commit_stays_whichever_ends_last() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        await groups.commit_in_transaction(20, OTHER)
        groups.end(OTHER)
        assert (groups.offsets(), groups.pending()) == ({PLACE: 20}, {PLACE})
        groups.end(PRODUCER)
        assert (groups.offsets(), groups.pending()) == ({PLACE: 20}, set())
        await groups.restart()
        assert groups.offsets() == {PLACE: 20}

    tell(story)


def test_an_earlier_commit_that_is_settled_late_does_not_replace_the_transactions() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(4)
        groups.topic.hold()
        earlier = asyncio.ensure_future(groups.commit(5))
        later = asyncio.ensure_future(groups.commit_in_transaction(10))
        await asyncio.sleep(0.01)
        groups.topic.mark(groups.partition, PRODUCER, is_commit=True)
        groups.topic.release()
        groups.coordinator.transaction_ended(groups.partition, PRODUCER, True)
        await asyncio.gather(earlier, later)
        assert groups.offsets() == {PLACE: 10}
        await groups.restart()
        assert groups.offsets() == {PLACE: 10}

    tell(story)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_compaction_keeps_what_is_pending(is_commit: bool) -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        for offset in range(20):
            await groups.commit(offset, partition=1)
        await groups.commit_in_transaction(10)
        groups.compact()
        await groups.restart()
        assert (groups.offsets(), groups.pending()) == ({PLACE: 5, ("flights", 1): 19}, {PLACE})
        groups.end(is_commit=is_commit)
        expected = {PLACE: 10 if is_commit else 5, ("flights", 1): 19}
        for _ in range(2):
            assert (groups.offsets(), groups.pending()) == (expected, set())
            groups.compact()
            await groups.restart()
        assert len(groups.topic.records(groups.partition)) == 2, "what is decided is compacted as all else"

    tell(story)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_ends_during_a_compaction_is_replayed_from_its_own_records(is_commit: bool) -> None:
    """The copy that the compaction makes of the offset before comes after the marker."""

    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        await groups.commit_in_transaction(10)
        groups.topic.mark(groups.partition, PRODUCER, is_commit=is_commit)
        groups.compact()
        groups.coordinator.transaction_ended(groups.partition, PRODUCER, is_commit)
        expected = {PLACE: 10 if is_commit else 5}
        assert groups.offsets() == expected
        for _ in range(2):
            await groups.restart()
            assert (groups.offsets(), groups.pending()) == (expected, set())
            groups.compact()

    tell(story)


def test_a_marker_that_comes_while_the_group_is_loaded_counts() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        await groups.commit_in_transaction(20, OTHER, partition=1)
        for offset in range(BATCHES_PER_READ - 2):
            await groups.commit(offset, partition=2)
        await groups.coordinator.close()
        groups.topic.read_gate.clear()
        groups.open()
        await asyncio.sleep(0.01)
        groups.end()
        groups.end(OTHER, is_commit=False)
        groups.topic.read_gate.set()
        await groups.loaded()
        assert groups.topic.reads == 1, "the markers come after the records that are read"
        last = BATCHES_PER_READ - 3
        assert (groups.offsets(), groups.pending()) == ({PLACE: 10, ("flights", 2): last}, set())

    tell(story)


def test_a_marker_of_a_partition_that_another_broker_leads_changes_nothing() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        former = groups.coordinator
        groups.elect(2)
        await groups.loaded()
        former.transaction_ended(groups.partition, PRODUCER, True)
        assert (groups.offsets(), groups.pending()) == ({}, {PLACE})

    tell(story, brokers=2)


def test_members_are_fenced_by_generation_and_id() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.stabilize("anna")
        member_id, generation = groups.members["anna"], groups.generation

        async def commit(*member: object) -> ErrorCode:
            commits = {PLACE: Commit(10, -1, "")}
            identity = MemberIdentity(*member)  # type: ignore[arg-type]
            work = groups.coordinator.commit_in_transaction(GROUP, identity, PRODUCER, commits, groups._verify)
            return await code_of(work)

        assert await commit(member_id, generation) is ErrorCode.none
        assert await commit() is ErrorCode.none, "producers before KIP-447 name no member"
        assert await commit(member_id, generation - 1) is ErrorCode.illegal_generation
        assert await commit(member_id, -1) is ErrorCode.illegal_generation
        assert await commit("stranger", generation) is ErrorCode.unknown_member_id
        assert await commit(member_id, generation, "other") is ErrorCode.unknown_member_id
        joining = asyncio.ensure_future(groups.join("berta"))
        await asyncio.sleep(0.01)
        assert await commit(member_id, generation) is ErrorCode.none, "the transaction has read in this generation"
        await groups.leave("anna")
        await joining

    tell(story, initial_rebalance_delay_ms=0)


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        assert (await groups.join("anna", instance_id="rack")).code is ErrorCode.none
        former, generation = groups.members.pop("anna"), groups.generation
        await groups.join("anna", instance_id="rack")
        commits = {PLACE: Commit(10, -1, "")}
        member = MemberIdentity(former, generation, "rack")
        work = groups.coordinator.commit_in_transaction(GROUP, member, PRODUCER, commits, groups._verify)
        assert await code_of(work) is ErrorCode.fenced_instance_id

    tell(story)


def test_a_generation_of_a_group_that_does_not_exist_is_illegal() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        commits = {PLACE: Commit(10, -1, "")}
        for member, expected in ((MemberIdentity("anna", 1), ErrorCode.illegal_generation), (MemberIdentity(), None)):
            work = groups.coordinator.commit_in_transaction(GROUP, member, PRODUCER, commits, groups._verify)
            assert await code_of(work) is (expected or ErrorCode.none)

    tell(story)


def test_a_group_lives_as_long_as_its_pending_offsets() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        assert groups.coordinator.group(GROUP) is not None
        await groups.restart()
        assert groups.coordinator.group(GROUP) is not None
        groups.end(is_commit=False)
        assert groups.coordinator.group(GROUP) is None

    tell(story)


def test_an_offset_with_a_pending_one_does_not_expire() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        await groups.commit(5, partition=1)
        await groups.commit_in_transaction(10)
        await asyncio.sleep(10)
        await groups.coordinator._removal._expire_all()
        assert groups.offsets() == {PLACE: 5}
        groups.end(is_commit=False)
        await groups.coordinator._removal._expire_all()
        assert groups.coordinator.group(GROUP) is None

    tell(story, offsets_retention_ms=5_000, expiry_check_interval_ms=DAY_MS)


def test_a_group_whose_only_offset_is_pending_does_not_expire() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        await asyncio.sleep(10)
        await groups.coordinator._removal._expire_all()
        groups.end()
        assert groups.offsets() == {PLACE: 10}
        assert groups.coordinator.group(GROUP) is not None

    tell(story, offsets_retention_ms=5_000, expiry_check_interval_ms=DAY_MS)


def test_deleting_a_group_or_an_offset_drops_what_is_pending() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit_in_transaction(10)
        assert await groups.coordinator.delete_offsets(GROUP, [PLACE]) == {PLACE: ErrorCode.none}
        assert groups.pending() == set()
        await groups.commit_in_transaction(11)
        await groups.coordinator.delete_group(GROUP)
        for _ in range(2):
            assert (groups.offsets(), groups.pending()) == ({}, set())
            await groups.restart()
        groups.end()
        for _ in range(2):
            assert (groups.offsets(), groups.pending()) == ({}, set())
            await groups.restart()

    tell(story)


def test_an_offset_that_is_pending_after_a_deletion_is_kept() -> None:
    async def story(groups: CoordinatorFixture) -> None:
        await groups.commit(5)
        groups.topic.hold()
        deletion = asyncio.ensure_future(groups.coordinator.delete_offsets(GROUP, [PLACE]))
        await asyncio.sleep(0.01)
        commit = asyncio.ensure_future(groups.commit_in_transaction(10))
        await asyncio.sleep(0.01)
        groups.topic.release()
        await asyncio.gather(deletion, commit)
        groups.end()
        assert groups.offsets() == {PLACE: 10}
        await groups.restart()
        assert groups.offsets() == {PLACE: 10}

    tell(story)


class Model:
    """The offsets and the pending offsets of a group, each with the number of its commit."""

    def __init__(self, groups: CoordinatorFixture) -> None:
        self.groups, self.number = groups, 0
        self.written: dict[tuple[str, int], tuple[int, int]] = {}
        self.open: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}

    async def take(self, step: "Step") -> None:
        what, which, offset = step
        self.number += 1
        await getattr(self, what)(which, offset)

    async def commit(self, partition: int, offset: int) -> None:
        await self.groups.commit(offset, partition=partition)
        self.written["flights", partition] = self.number, offset

    async def delete(self, partition: int, _: int) -> None:
        place = TopicPartition("flights", partition)
        if self.groups.coordinator.group(GROUP) is not None:
            await self.groups.coordinator.delete_offsets(GROUP, [place])
        for offsets in (self.written, *self.open.values()):
            offsets.pop(place, None)

    async def write(self, producer: int, offset: int) -> None:
        await self.groups.commit_in_transaction(offset, ProducerIdAndEpoch(producer, 0), partition=offset % 2)
        self.open.setdefault(producer, {})["flights", offset % 2] = self.number, offset

    async def end(self, producer: int, _: int) -> None:
        self.groups.end(ProducerIdAndEpoch(producer, 0))
        for place, change in self.open.pop(producer, {}).items():
            self.written[place] = max(change, self.written.get(place, change))

    async def abort(self, producer: int, _: int) -> None:
        self.groups.end(ProducerIdAndEpoch(producer, 0), is_commit=False)
        self.open.pop(producer, None)

    async def compact(self, *_: int) -> None:
        self.groups.compact()

    async def restart(self, *_: int) -> None:
        await self.groups.restart()

    def check(self) -> None:
        assert self.groups.offsets() == {place: offset for place, (_, offset) in self.written.items()}
        assert self.groups.pending() == {place for offsets in self.open.values() for place in offsets}


Step = tuple[str, int, int]
STEPS = st.one_of(
    st.tuples(st.sampled_from(["commit", "delete"]), st.integers(0, 1), st.integers(0, 99)),
    st.tuples(st.sampled_from(["write", "write", "end", "abort"]), st.integers(0, 2), st.integers(0, 99)),
    st.tuples(st.sampled_from(["compact", "restart"]), st.just(0), st.just(0)),
)


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=100, deadline=None)
def test_in_whatever_order_commits_and_transactions_come_a_restart_changes_nothing(steps: list[Step]) -> None:
    async def story(groups: CoordinatorFixture) -> None:
        model = Model(groups)
        for step in steps:
            await model.take(step)
            model.check()
        await groups.restart()
        model.check()

    tell(story)
