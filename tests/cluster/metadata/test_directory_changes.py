"""Log directories of replicas in the metadata (KIP-858): a missing one costs only what lay there."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from metadata_scenario import TOPIC, MetadataScenario

from cordwood.cluster.metadata import snapshot
from cordwood.cluster.metadata.commands import (
    AlterPartitions,
    AssignReplicasToDirs,
    BrokerId,
    DeleteTopic,
    DropReplicas,
    Endpoint,
    IsrChange,
    ReassignPartition,
    RegisterBroker,
    UnregisterBroker,
)
from cordwood.cluster.metadata.directory_changes import UNKNOWN
from cordwood.cluster.metadata.image import NO_LEADER, PartitionImage

A, B, C = (str(UUID(int=number)) for number in (10, 11, 12))


def assign(cluster: MetadataScenario, directories: dict[int, str], broker: int = 1) -> MetadataScenario:
    rows = tuple((TOPIC, index, directory) for index, directory in directories.items())
    return cluster.apply(AssignReplicasToDirs(BrokerId(broker), cluster.broker(broker).epoch, rows))


def in_sync(cluster: MetadataScenario, broker: int = 1) -> list[int]:
    partitions = cluster.image.topics_by_id[TOPIC].partitions
    return [index for index, partition in enumerate(partitions) if broker in partition.isr]


def partition_of(cluster: MetadataScenario, index: int) -> PartitionImage:
    return cluster.image.topics_by_id[TOPIC].partitions[index]


def recorded(cluster: MetadataScenario, broker: int = 1) -> dict[int, str]:
    known = cluster.image.directories.get(BrokerId(broker), {})
    return {index: directory for (_, index), directory in known.items()}


def mixed_with(directories: dict[int, str]) -> MetadataScenario:
    """Return a cluster whose broker 1 alone has four partitions, some of them in known directories."""
    cluster = MetadataScenario(0).level(2).restart(1, (A, B)).restart(2).restart(3)
    return assign(cluster.create(1, partitions=4), directories)


@pytest.mark.parametrize(
    ("now", "kept"), [((A, B), [0, 1, 2, 3]), ((B, A), [0, 1, 2, 3]), ((B,), [2]), ((C, A), [0, 1]), ((C,), [])]
)
def test_each_registration_keeps_what_is_in_its_directories(now: tuple[str, ...], kept: list[int]) -> None:
    cluster = mixed_with({0: A, 1: A, 2: B}).restart(1, now)
    assert in_sync(cluster) == kept


def test_without_any_record_every_replica_is_lost() -> None:
    assert in_sync(mixed_with({}).restart(1, (A,))) == []


def test_a_directory_that_comes_back_has_nothing_that_is_counted_on() -> None:
    cluster = mixed_with({0: A, 1: A, 2: B}).restart(1, (A,)).restart(1, (A, B))
    assert (in_sync(cluster), recorded(cluster)) == ([0, 1], {0: A, 1: A})


def test_a_replica_that_moves_is_lost_with_either_directory() -> None:
    for left in (A, B):
        cluster = assign(mixed_with({0: A, 1: A, 2: B}), {0: UNKNOWN})
        assert recorded(cluster) == {1: A, 2: B}
        assert 0 not in in_sync(cluster.restart(1, (left,)))
    assert 0 in in_sync(assign(assign(mixed_with({0: A}), {0: UNKNOWN}), {0: B}).restart(1, (B,)))


def test_records_that_do_not_fit_are_passed_over() -> None:
    cluster = mixed_with({0: A, 9: A, 1: C})
    assert recorded(cluster) == {0: A}
    other = AssignReplicasToDirs(BrokerId(2), cluster.broker(2).epoch, ((TOPIC, 0, cluster.broker(2).log_dirs[0]),))
    assert recorded(cluster.apply(other), 2) == {}
    stale = AssignReplicasToDirs(BrokerId(1), cluster.broker(1).epoch - 1, ((TOPIC, 1, A),))
    assert cluster.refusal(stale) is ErrorCode.stale_broker_epoch


def test_a_replica_that_leaves_and_returns_may_be_anywhere() -> None:
    cluster = mixed_with({0: A, 1: A})
    cluster.move(2)
    cluster.in_sync(1, 2)
    assert recorded(cluster) == {1: A}
    cluster.move(1, 2)
    assert recorded(cluster) == {1: A}


def test_a_deleted_topic_and_an_unregistered_broker_have_no_directories() -> None:
    cluster = mixed_with({0: A, 2: B}).apply(DeleteTopic(TOPIC))
    assert cluster.image.directories == {}
    cluster = mixed_with({0: A})
    cluster.apply(DeleteTopic(TOPIC)).fence(1).apply(UnregisterBroker(BrokerId(1)))
    assert cluster.image.directories == {}


STEPS = ("assign", "move", "cancel", "in sync", "restart", "restart elsewhere", "lose")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 3), st.integers(0, 3)), max_size=20))
def test_only_replicas_have_recorded_directories(steps: list[tuple[str, int, int]]) -> None:
    """A broker that can be unregistered has no replica, and so no record is left of it."""
    cluster = mixed_with({0: A, 1: B})
    for step, number, index in steps:
        broker, place, partition = cluster.broker(number), (TOPIC, index), partition_of(cluster, index)
        match step:
            case "assign":
                cluster.apply(AssignReplicasToDirs(broker.id, broker.epoch, ((*place, broker.log_dirs[0]),)))
            case "move":
                cluster.refusal(ReassignPartition(*place, (broker.id, BrokerId(number % 3 + 1))))
            case "cancel":
                cluster.refusal(ReassignPartition(*place, None))
            case "in sync" if partition.leader != NO_LEADER:
                members = tuple((one, cluster.image.brokers[one].epoch) for one in partition.replicas)
                change = IsrChange(*place, partition.leader_epoch, partition.partition_epoch, members)
                leader = cluster.image.brokers[partition.leader]
                cluster.apply(AlterPartitions(leader.id, leader.epoch, (change,)))
            case "restart":
                cluster.restart(number, (A, B))
            case "restart elsewhere":
                cluster.restart(number, (C,))
            case "lose":
                cluster.apply(DropReplicas(broker.id, broker.epoch, (place,), is_gone=True))
        for holder, known in cluster.image.directories.items():
            assert known, "a broker without a record is left out"
            assert all(holder in partition_of(cluster, at).replicas for _, at in known)


def test_a_cluster_of_the_first_level_has_no_records() -> None:
    cluster = MetadataScenario(0).restart(1, (A, B)).create(1)
    refused = AssignReplicasToDirs(BrokerId(1), cluster.broker(1).epoch, ((TOPIC, 0, A),))
    assert cluster.refusal(refused) is ErrorCode.unsupported_version


def test_a_snapshot_has_the_records() -> None:
    image = mixed_with({0: A, 2: B}).image
    assert snapshot.decode(snapshot.encode(image)).directories == image.directories


def test_a_registration_of_the_same_incarnation_replaces_the_directories_and_endpoints() -> None:
    cluster = MetadataScenario()
    known = cluster.broker(1)
    endpoints, log_dirs = (Endpoint("PLAINTEXT", "elsewhere", 1),), (*known.log_dirs, "one more")
    cluster.apply(RegisterBroker(known.id, known.incarnation, endpoints, "a", log_dirs, levels=known.levels))
    again = cluster.broker(1)
    assert (again.endpoints, again.rack, again.log_dirs, again.epoch) == (endpoints, "a", log_dirs, known.epoch)
