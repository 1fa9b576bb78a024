"""The requests of `cordwood status` and `cluster can-stop`, repeated if the client picks a dead broker."""

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError, NodeNotReadyError, TopicAuthorizationFailedError

from cordwood.cluster.cli import cluster_view
from cordwood.cluster.cli.cluster_view import view_of

CLUSTER: dict[str, Any] = {
    "cluster_id": "Cid",
    "brokers": [
        {"broker_id": 1, "host": "127.0.0.1", "port": 9092, "rack": None, "is_fenced": False},
        {"broker_id": 2, "host": "127.0.0.1", "port": 9093, "rack": None, "is_fenced": True},
    ],
}
PARTITION = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1], "offline_replicas": [2]}
VOTERS = [{"replica_id": 1, "log_end_offset": 5}, {"replica_id": 2, "log_end_offset": -1}]
QUORUM = {"leader_id": 1, "leader_epoch": 3, "current_voters": VOTERS, "observers": []}


class Admin:
    """A client whose first `failures` requests of each kind go to a dead broker."""

    def __init__(self, failures: int, error: type[KafkaError]) -> None:
        self._failures, self._error = failures, error
        self.asked: Counter[str] = Counter()

    def describe_cluster(self) -> dict[str, Any]:
        return self._answer("cluster", CLUSTER)

    def describe_topics(self) -> list[dict[str, Any]]:
        return self._answer("topics", [{"name": "t", "partitions": [PARTITION]}])

    def describe_metadata_quorum(self) -> dict[str, Any]:
        return self._answer("quorum", {"topics": [{"partitions": [QUORUM]}]})

    def describe_configs(self, _wanted: object, config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        return self._answer("configs", {"topic": {"t": {"min.insync.replicas": {"value": "2"}}}})

    def list_partition_reassignments(self) -> dict[Any, Any]:
        return self._answer("moves", {})

    def describe_log_dirs(self, brokers: list[int]) -> list[dict[str, Any]]:
        return self._answer(f"directories of {brokers}", [{"log_dirs": []}])

    def _answer(self, question: str, answer: Any) -> Any:
        self.asked[question] += 1
        if self.asked[question] <= self._failures:
            raise self._error("broker 2")
        return answer


@pytest.fixture(autouse=True)
def broker_1() -> Iterator[None]:
    """Listen on a port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        CLUSTER["brokers"][0]["port"] = listener.getsockname()[1]
        yield


def test_each_question_is_repeated_until_a_broker_answers() -> None:
    admin = Admin(2, NodeNotReadyError)
    view = view_of(cast(KafkaAdminClient, admin))
    assert admin.asked == {"cluster": 3, "topics": 3, "quorum": 3, "configs": 3, "moves": 3, "directories of [1]": 3}
    assert [broker.log_directories for broker in view.brokers] == [(), None]
    assert [broker.is_alive for broker in view.brokers] == [True, False]
    assert [partition.min_isr for partition in view.partitions] == [2]


def test_a_refusal_is_not_repeated() -> None:
    admin = Admin(1, TopicAuthorizationFailedError)
    with pytest.raises(TopicAuthorizationFailedError):
        view_of(cast(KafkaAdminClient, admin))
    assert admin.asked == {"cluster": 1}


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "PATIENCE_S", 0.0)
    with pytest.raises(NodeNotReadyError):
        view_of(cast(KafkaAdminClient, Admin(1, NodeNotReadyError)))


def test_a_broker_that_cannot_be_reached_is_not_asked_for_its_directories() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        CLUSTER["brokers"][0]["port"] = listener.getsockname()[1]
    admin = Admin(0, NodeNotReadyError)
    assert view_of(cast(KafkaAdminClient, admin)).brokers[0].log_directories is None
    assert admin.asked == {"cluster": 1, "topics": 1, "quorum": 1, "configs": 1, "moves": 1}
