"""The check of whether a broker may be stopped, on clusters as values."""

from cordwood.cluster.operations.can_stop import reasons_against
from cordwood.cluster.operations.view import BrokerInfo, ClusterView, PartitionInfo, QuorumInfo, ReplicaInfo


def cluster(
    partitions: tuple[PartitionInfo, ...] = (), *, brokers: int = 3, down: tuple[int, ...] = (), voters: int = 3
) -> ClusterView:
    """Return brokers 1 to N, of which the first `voters` are the quorum."""
    rows = tuple(
        BrokerInfo(number, f"127.0.0.1:{9091 + number}", None, number not in down, ())
        for number in range(1, brokers + 1)
    )
    ends = {broker.broker_id: 10 for broker in rows}
    return ClusterView("c", rows, QuorumInfo(1, 1, tuple(range(1, voters + 1)), ends), partitions)


def partition(index: int, replicas: list[int], isr: list[int], min_isr: int = 2) -> PartitionInfo:
    """Return a partition of topic t."""
    copies = tuple(ReplicaInfo(broker, broker in isr, False, 0, 0) for broker in replicas)
    return PartitionInfo("t", index, isr[0] if isr else None, copies, min_isr)


def test_a_broker_that_others_stand_in_for_may_be_stopped() -> None:
    view = cluster((partition(0, [1, 2, 3], [1, 2, 3]), partition(1, [2, 3], [2, 3], min_isr=1)))
    assert [reasons_against(view, {broker}) for broker in (1, 2, 3)] == [[], [], []]


def test_a_partition_that_could_not_be_written_any_more_is_a_reason() -> None:
    view = cluster((partition(0, [1, 2, 3], [1, 2]), partition(1, [1, 2, 3], [1, 2, 3])))
    [reason] = reasons_against(view, {2})
    assert reason == "1 partition would be left below min.insync.replicas: writes with acks=all would be refused (t-0)"
    assert reasons_against(view, {3}) == [], "it is not in the ISR"


def test_a_partition_that_is_nowhere_else_is_a_reason() -> None:
    view = cluster(tuple(partition(index, [3], [3], min_isr=1) for index in range(5)))
    [reason] = reasons_against(view, {3})
    assert reason.startswith("5 partitions would be left without an in-sync replica")
    assert reason.endswith("(t-0, t-1, t-2, …)")


def test_an_in_sync_replica_on_a_broker_that_is_down_does_not_count() -> None:
    view = cluster((partition(0, [4, 5], [4, 5], min_isr=1),), brokers=5, down=(5,))
    assert len(reasons_against(view, {4})) == 1


def test_a_majority_of_the_voters_has_to_stay() -> None:
    [reason] = reasons_against(cluster(down=(3,)), {1})
    assert "1 of its 3 voters and needs 2" in reason
    assert reasons_against(cluster(brokers=4, down=(3,)), {4}) == [], "it has no vote"
    assert reasons_against(cluster(brokers=5, voters=5, down=(3,)), {1}) == []
    assert len(reasons_against(cluster(brokers=1, voters=1), {1})) == 1


def test_every_reason_is_given() -> None:
    view = cluster((partition(0, [1], [1], min_isr=1), partition(1, [1, 2], [1, 2])), down=(3,))
    assert len(reasons_against(view, {1})) == 3


def test_a_broker_that_is_unknown_or_down_is_said_to_be() -> None:
    assert reasons_against(cluster(), {7}) == ["there is no broker 7: the cluster has 1, 2, 3"]
    assert reasons_against(cluster(down=(2,)), {2}) == ["broker 2 is already down"]


def test_the_brokers_of_a_host_are_stopped_together() -> None:
    view = cluster((partition(0, [1, 2, 3], [1, 2, 3], min_isr=1),), brokers=6)
    assert reasons_against(view, {4, 5}) == []
    assert len(reasons_against(view, {1, 2})) == 1, "the quorum has no majority left"
    partitions, quorum = reasons_against(view, {1, 2, 3})
    assert partitions.startswith("1 partition would be left without an in-sync replica")
    assert "the metadata quorum would have 0 of its 3 voters" in quorum
