"""Open transactions of a cluster some of whose partitions or brokers do not answer."""

from typing import Any

import pytest
from kafka import TopicPartition as KafkasTopicPartition
from kafka.admin import PartitionProducerState, ProducerState
from kafka.errors import KafkaConnectionError, NotLeaderForPartitionError

from cordwood.cluster.cli import open_transactions
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.open_transactions import TRANSACTION_STATE, coordinated, listed, searched
from cordwood.storage.types import NO_LEADER, TopicPartition

HERE, MOVED, LEADERLESS = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


class Admin:
    """kafka-python's admin client of two brokers. Broker 2 hangs, and partition t-1 has just moved."""

    def __init__(self, leaders: dict[TopicPartition, int]) -> None:
        self.leaders = leaders

    def describe_cluster(self) -> Any:
        return {"brokers": [{"broker_id": 1}, {"broker_id": 2}, {"broker_id": 3, "is_fenced": True}]}

    def describe_topics(self) -> Any:
        return [
            {"name": place.topic, "partitions": [{"partition_index": place.partition, "leader_id": leader}]}
            for place, leader in self.leaders.items()
        ]

    def list_transactions(self, brokers: list[int], **filters: Any) -> Any:
        if 2 in brokers:
            raise KafkaConnectionError("it hangs")
        return {broker: [filters] for broker in brokers}

    def describe_producers(self, places: list[KafkasTopicPartition], _broker: int) -> Any:
        if KafkasTopicPartition(*MOVED) in places:
            raise NotLeaderForPartitionError
        producer = ProducerState(7, 0, 3, 1000, -1, 5)
        idle = ProducerState(8, 0, 3, 1000, 0, -1)
        return {place: PartitionProducerState([producer, idle]) for place in places}


def test_partitions_that_cannot_be_asked_are_noted_and_the_others_searched(capsys: pytest.CaptureFixture[str]) -> None:
    admin: Any = Admin({HERE: 1, MOVED: 1, LEADERLESS: NO_LEADER})
    (found,) = open_transactions.open_transactions(admin, searched(admin, "t", None, None))
    assert (found.place, found.producer_id, found.start_offset) == (HERE, 7, 5)
    notes = capsys.readouterr().err
    assert "t-2 has no leader" in notes
    assert "t-1 was not searched" in notes
    assert "t-0" not in notes


def test_without_a_coordinator_no_transaction_is_taken_for_a_hanging_one() -> None:
    admin: Any = Admin({HERE: 1, TopicPartition(TRANSACTION_STATE, 4): NO_LEADER})
    with pytest.raises(Failure, match="__transaction_state-4 has no leader"):
        coordinated(admin, {7})
    assert coordinated(admin, set()) == {}


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "ONE_BROKER_S", 0.0)
    admin: Any = Admin({})
    found, reasons = listed(admin, state_filters=["Ongoing"])
    assert found == {1: [{"state_filters": ["Ongoing"]}]}
    assert reasons == ["broker 2 does not answer (KafkaConnectionError: it hangs)"]
