"""Deletion of a group with more offsets than one batch: after an error, memory and log agree, and a retry completes."""

import pytest
from consumer_group_scenario import ConsumerGroupScenario
from coordinator_fixture import GROUP, CoordinatorFixture
from kio.schema.errors import ErrorCode
from virtual_time import run

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.groups.consumer.exchange import ConsumerHeartbeat
from cordwood.cluster.groups.coordinator import Commit, MemberIdentity
from cordwood.cluster.groups.state_store import GROUP_RECORDS_PER_BATCH_MAX
from cordwood.storage.types import TopicPartition

COUNT = 2 * GROUP_RECORDS_PER_BATCH_MAX + 1
ANNA = ConsumerHeartbeat("anna", 0, rebalance_timeout_ms=60_000, topics=frozenset({"flights"}), owned={})


async def with_offsets(kind: str) -> CoordinatorFixture:
    """Return a coordinator of an empty group of a kind that has committed COUNT offsets."""
    groups = CoordinatorFixture(1, ConsumerGroupScenario({"flights": 6}).context)
    if kind == "classic":
        await groups.stabilize("anna")
        await groups.leave("anna")
    elif kind == "consumer":
        await groups.coordinator.consumers.heartbeat(GROUP, ANNA)
        gone = ConsumerHeartbeat("anna", -1)
        await groups.coordinator.consumers.heartbeat(GROUP, gone)
    commits = {TopicPartition("flights", number): Commit(number, -1, "") for number in range(COUNT)}
    await groups.coordinator.commit(GROUP, MemberIdentity(), commits)
    assert len(groups.offsets()) == COUNT
    return groups


async def partly_deleted(kind: str, batches: int) -> CoordinatorFixture:
    """Return the coordinator of `with_offsets` after a deletion of the group failed after `batches` of its batches."""
    groups = await with_offsets(kind)
    groups.topic.accepts = batches
    with pytest.raises(Refused):
        await groups.coordinator.delete_group(GROUP)
    groups.topic.accepts = None
    return groups


@pytest.mark.parametrize("kind", ["simple", "classic", "consumer"])
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_partly_deleted_group_has_what_the_log_has(kind: str, batches: int) -> None:
    async def story() -> None:
        groups = await partly_deleted(kind, batches)
        left = groups.offsets()
        assert len(left) == COUNT - batches * GROUP_RECORDS_PER_BATCH_MAX
        assert groups.coordinator.group(GROUP) is not None
        await groups.restart()
        assert groups.offsets() == left
        assert groups.coordinator.group(GROUP) is not None, "else nothing would show the offsets that are left"

    run(story())


@pytest.mark.parametrize("kind", ["simple", "classic", "consumer"])
@pytest.mark.parametrize("batches", [0, 1, 2])
@pytest.mark.parametrize("is_failed_over", [False, True])
def test_a_deletion_that_is_repeated_completes(kind: str, batches: int, is_failed_over: bool) -> None:
    async def story() -> None:
        groups = await partly_deleted(kind, batches)
        if is_failed_over:
            await groups.restart()
        await groups.coordinator.delete_group(GROUP)
        assert (groups.coordinator.group(GROUP), groups.offsets()) == (None, {})
        await groups.restart()
        assert (groups.coordinator.group(GROUP), groups.offsets()) == (None, {})

    run(story())


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_who_joins_a_partly_deleted_group_is_restored(kind: str) -> None:
    async def story() -> None:
        groups = await partly_deleted(kind, 1)
        if kind == "classic":
            await groups.stabilize("ben")
        else:
            ben = ConsumerHeartbeat("ben", 0, rebalance_timeout_ms=60_000, topics=frozenset({"flights"}), owned={})
            assert (await groups.coordinator.consumers.heartbeat(GROUP, ben)).code is ErrorCode.none
        before = groups.coordinator.group(GROUP)
        assert before is not None
        await groups.restart()
        after = groups.coordinator.group(GROUP)
        assert after is not None
        assert (after.kind, after.member_count, after.epoch) == (before.kind, 1, before.epoch)

    run(story())
