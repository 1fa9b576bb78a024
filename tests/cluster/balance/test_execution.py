"""The window of moves that run at the same time."""

from cordwood.cluster.balance.execution import REORDERED_AT_ONCE, Execution
from cordwood.cluster.balance.plan import ReplicaMove


def test_a_broker_receives_few_replicas_at_a_time() -> None:
    run = Execution([ReplicaMove("t", number, (number % 3,), (9,)) for number in range(9)], copies_per_broker=2)
    assert [move.index for move in run.begin()] == [0, 1]
    assert run.begin() == []
    run.end(("t", 0))
    assert [move.index for move in run.begin()] == [2]
    assert run.waiting == 6


def test_a_leader_sends_few_partitions_at_a_time() -> None:
    run = Execution([ReplicaMove("t", number, (1,), (number + 2,)) for number in range(5)], copies_per_broker=2)
    assert len(run.begin()) == 2


def test_moves_between_other_brokers_do_not_wait() -> None:
    moves = [ReplicaMove("t", 0, (1,), (2,)), ReplicaMove("t", 1, (1,), (2,)), ReplicaMove("t", 2, (3,), (4,))]
    assert [move.index for move in Execution(moves, copies_per_broker=1).begin()] == [0, 2]


def test_reordered_replicas_begin_together_up_to_a_limit() -> None:
    run = Execution([ReplicaMove("t", number, (1, 2), (2, 1)) for number in range(REORDERED_AT_ONCE + 1)])
    assert len(run.begin()) == REORDERED_AT_ONCE


def test_every_move_begins_once_and_ends_or_is_refused() -> None:
    moves = [ReplicaMove("t", number, (number % 3,), (3 + number % 2,)) for number in range(50)]
    run, begun = Execution(moves, copies_per_broker=3), []
    while not run.is_over:
        for move in run.begin():
            begun.append(move)
            place = (move.topic, move.index)
            run.refuse(place, "no") if move.index % 7 == 0 else run.end(place)
    assert sorted(begun, key=lambda move: move.index) == moves
    assert len(run.ended) + len(run.refused) == len(moves)


def test_a_stop_begins_nothing_more() -> None:
    run = Execution([ReplicaMove("t", number, (1,), (2,)) for number in range(5)], copies_per_broker=2)
    run.begin()
    assert len(run.stop()) == 2
    run.end(("t", 0))
    assert run.begin() == []
