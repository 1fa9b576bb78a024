"""DescribeQuorum in every version: voters, leader, and each replica's log end, which the leader knows."""

from typing import Any, cast
from uuid import UUID

import pytest
from admin_fixture import NOW_MS, AdminFixture
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse, PartitionData, TopicData
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.handlers import describe_quorum
from cordwood.cluster.kafka.quorum_leader import ASKING_BROKER, METADATA_TOPIC, QuorumLeader
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import QuorumStatus, VoterStatus
from cordwood.cluster.security.principal import Identity

LED = TopicData(
    topic_name=METADATA_TOPIC,
    partitions=(
        PartitionData(
            partition_index=0,
            error_code=ErrorCode.none,
            error_message=None,
            leader_id=BrokerId(2),
            leader_epoch=4,
            high_watermark=9,
            current_voters=(),
            observers=(),
        ),
    ),
)
"""What the leader has, one term later than the broker that is asked knows."""


def describe(admin: AdminFixture, version: int, topic: str = "__cluster_metadata", *partitions: int) -> Any:
    wanted = tuple({"partition_index": index} for index in partitions or (0,))
    return admin.ask(describe_quorum, version, topics=({"topic_name": topic, "partitions": wanted},))


@pytest.mark.parametrize("version", describe_quorum.KEY.versions)
def test_every_version_has_the_one_voter(admin: AdminFixture, version: int) -> None:
    for number in range(3):
        admin.propose(CreateTopic(UUID(int=number + 1), f"topic-{number}", ((BrokerId(1),),)))
    response = describe(admin, version)
    ((partition,),) = (topic.partitions for topic in response.topics)
    assert (response.error_code, partition.error_code) == (ErrorCode.none, ErrorCode.none)
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    # The format command, a broker's registration and unfencing, and three topics.
    assert partition.high_watermark == admin.image.index == 6
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (1, 6, ())
    if version >= 1:
        assert voter.last_caught_up_timestamp == NOW_MS
    if version >= 2:
        (node,) = response.nodes
        assert node.node_id == 1
        assert [(at.name, at.host, at.port) for at in node.listeners] == [
            ("PLAINTEXT", "host-1", 9092),
            ("LAN", "lan-1", 9093),
        ]


@pytest.mark.parametrize("version", describe_quorum.KEY.versions)
def test_there_is_no_other_quorum(admin: AdminFixture, version: int) -> None:
    for response in (
        describe(admin, version, "flights"),
        describe(admin, version, "__cluster_metadata", 1),
        describe(admin, version, "__cluster_metadata", 0, 1),
    ):
        rows = [partition for topic in response.topics for partition in topic.partitions]
        assert {row.error_code for row in rows} == {ErrorCode.unknown_topic_or_partition}
        assert {row.current_voters for row in rows} == {()}


def test_a_broker_that_cannot_reach_the_leader_returns_what_it_knows(admin: AdminFixture) -> None:
    voters = (
        VoterStatus(BrokerId(1), 7, is_connected=True, last_heard_ms_ago=0),
        VoterStatus(BrokerId(2), 5, is_connected=True, last_heard_ms_ago=30),
        VoterStatus(BrokerId(3), None, is_connected=False, last_heard_ms_ago=None),
    )
    observer = VoterStatus(BrokerId(4), 7, is_connected=True, last_heard_ms_ago=10)
    admin.services.quorum = QuorumSeen(QuorumStatus(BrokerId(2), 3, 7, voters, (observer,)), admin.image)
    admin.services.quorum_leader = cast(QuorumLeader, LeaderSeen(None))
    response = describe(admin, 2)
    ((partition,),) = (topic.partitions for topic in response.topics)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 3, 7)
    rows = [
        (row.replica_id, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp)
        for row in (*partition.current_voters, *partition.observers)
    ]
    assert rows == [
        (1, 7, NOW_MS, NOW_MS),
        (2, 5, NOW_MS - 30, -1),
        (3, -1, -1, -1),
        (4, 7, NOW_MS - 10, NOW_MS - 10),
    ]
    assert [node.node_id for node in response.nodes] == [1], "only the first has registered"


def test_voters_that_the_configuration_names_have_their_address_for_other_voters() -> None:
    admin = AdminFixture(controller_quorum_voters=("1@one:9191", "2@two:9192", "3@three:9193"))
    try:
        voters = tuple(VoterStatus(BrokerId(id_), 7, is_connected=True, last_heard_ms_ago=0) for id_ in (1, 2, 3))
        admin.services.quorum = QuorumSeen(QuorumStatus(BrokerId(1), 3, 7, voters), admin.image)
        nodes = {
            node.node_id: [(at.name, at.host, at.port) for at in node.listeners] for node in describe(admin, 2).nodes
        }
    finally:
        admin.close()
    assert nodes[1][0] == ("CONTROLLER", "one", 9191)
    assert (nodes[2], nodes[3]) == ([("CONTROLLER", "two", 9192)], [("CONTROLLER", "three", 9193)])


def test_a_quorum_without_a_leader_says_so(admin: AdminFixture) -> None:
    admin.services.quorum = QuorumSeen(QuorumStatus(None, 3, 7, ()), admin.image)
    ((partition,),) = (topic.partitions for topic in describe(admin, 2).topics)
    assert partition.leader_id == -1


@pytest.mark.parametrize("version", describe_quorum.KEY.versions)
def test_another_broker_returns_the_answer_of_the_leader(admin: AdminFixture, version: int) -> None:
    leader = LeaderSeen(DescribeQuorumResponse(error_code=ErrorCode.none, error_message=None, topics=(LED,), nodes=()))
    admin.services.quorum = QuorumSeen(QuorumStatus(BrokerId(2), 3, 7, ()), admin.image)
    admin.services.quorum_leader = cast(QuorumLeader, leader)
    ((partition,),) = (topic.partitions for topic in describe(admin, version).topics)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (2, 4, 9)
    assert leader.asked == [BrokerId(2)]


def test_a_leader_asks_no_other_and_a_request_is_passed_on_once(admin: AdminFixture) -> None:
    leader = LeaderSeen(None)
    admin.services.quorum_leader = cast(QuorumLeader, leader)
    describe(admin, 2)
    admin.services.quorum = QuorumSeen(QuorumStatus(BrokerId(2), 3, 7, ()), admin.image)
    wanted = {"topic_name": METADATA_TOPIC, "partitions": ({"partition_index": 0},)}
    admin.ask(describe_quorum, 2, client_id=ASKING_BROKER, topics=(wanted,))
    assert leader.asked == []


class LeaderSeen:
    """A leader that gives one answer."""

    def __init__(self, answer: DescribeQuorumResponse | None) -> None:
        self._answer = answer
        self.asked: list[BrokerId] = []

    async def describe(self, leader: BrokerId, _asker: Identity) -> DescribeQuorumResponse | None:
        self.asked.append(leader)
        return self._answer


class QuorumSeen:
    """A quorum that only reports its status."""

    def __init__(self, status: QuorumStatus, image: Image) -> None:
        self._status, self.image = status, image

    def status(self) -> QuorumStatus:
        return self._status
