"""Introductions of other brokers: which of them may follow (rule 6, KIP-903)."""

from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from cordwood.cluster.broker.peer_directory import PeerDirectory
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.image import BrokerImage, Image
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.replication.frames import Open
from cordwood.replication.partition import Partition

TWO = BrokerId(2)
IMAGE = Image(cluster_id="ours", brokers={TWO: BrokerImage(TWO, UUID(int=7), 40, ())})
HELLO = Open(TWO, UUID(int=7), 40, "ours")


@pytest.fixture
def neighbours() -> PeerDirectory:
    """Return broker 1's directory of its peers."""
    quorum = cast(Quorum, SimpleNamespace(image=IMAGE))
    return PeerDirectory(quorum, 1, "PLAINTEXT", UUID(int=1))


def test_with_kafkas_leader_selector_no_replica_is_nearest() -> None:
    quorum = cast(Quorum, SimpleNamespace(image=IMAGE))
    neighbours = PeerDirectory(quorum, 1, "PLAINTEXT", UUID(int=1), is_rack_aware=False)
    assert neighbours.nearest(cast(Partition, SimpleNamespace()), "east", 0) is None


def test_who_is_registered_may_follow(neighbours: PeerDirectory) -> None:
    assert neighbours.why_not(HELLO) is None


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (HELLO._replace(cluster_id="theirs"), "it belongs to cluster theirs"),
        (HELLO._replace(broker_id=3), "no such broker is registered"),
        (HELLO._replace(incarnation=UUID(int=8)), "broker epoch 40 is registered"),
        (HELLO._replace(broker_epoch=39), "its epoch is 39"),
    ],
)
def test_no_other_broker_may(neighbours: PeerDirectory, hello: Open, reason: str) -> None:
    assert reason in str(neighbours.why_not(hello))
