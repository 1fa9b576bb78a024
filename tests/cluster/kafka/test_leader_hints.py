"""NOT_LEADER_OR_FOLLOWER responses of Produce name the current leader and its address (KIP-951)."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.produce import v9, v10, v11

from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.flood.raw_connection import ask
from cordwood.storage.records import Record, encode

TOPIC = "hinted"


def misdirected(version: Any, known: int) -> Any:
    """Return a Produce for a known partition and for one that does not exist."""
    batch = encode([Record(0, 0, None, b"value")])
    rows = tuple(version.request.PartitionProduceData(index=index, records=batch) for index in (known, 7))
    topic = version.request.TopicProduceData(name=TOPIC, partition_data=rows)
    return version.ProduceRequest(transactional_id=None, acks=-1, timeout=timedelta(seconds=5), topic_data=(topic,))


@pytest.mark.parametrize("version", [v10, v11], ids=["10", "11"])
def test_the_wrong_broker_names_the_right_one(cluster: LocalCluster, version: Any) -> None:
    seen = cluster.partition(TOPIC, 0)
    wrong = next(id_ for id_ in cluster.ids if id_ != seen.leader)
    answer = ask(cluster.brokers[wrong].address, misdirected(version, 0))
    known, unknown = answer.responses[0].partition_responses
    assert known.error_code is ErrorCode.not_leader_or_follower
    assert (known.current_leader.leader_id, known.current_leader.leader_epoch) == (seen.leader, seen.leader_epoch)
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    assert unknown.current_leader.leader_id == -1
    [node] = answer.node_endpoints
    assert (node.node_id, f"{node.host}:{node.port}") == (seen.leader, cluster.brokers[seen.leader].address)


def test_an_older_client_is_refused_as_before(cluster: LocalCluster) -> None:
    leader = cluster.partition(TOPIC, 0).leader
    wrong = next(id_ for id_ in cluster.ids if id_ != leader)
    answer = ask(cluster.brokers[wrong].address, misdirected(v9, 0))
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.not_leader_or_follower


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place: Path = tmp_path_factory.mktemp("hinted")
    with LocalCluster(place) as running:
        running.create_topic(TOPIC, 1)
        yield running
