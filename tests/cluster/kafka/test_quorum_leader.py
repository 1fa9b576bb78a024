"""The leader of the metadata quorum as another broker asks it: its answer to a client, or none."""

from kio.schema.errors import ErrorCode
from share_fixture import ShareFixture, with_members

from cordwood.cluster.kafka.quorum_leader import ASKING_BROKER, QuorumLeader
from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.security.principal import NO_IDENTITY, THIS_BROKER


def test_the_leader_answers_with_the_rights_of_the_client_and_a_broker_that_is_not_there_not_at_all() -> None:
    async def story(group: ShareFixture) -> None:
        broker = group.broker.broker
        leader = QuorumLeader(broker._cluster_client(ASKING_BROKER))
        here = BrokerId(broker._settings.node_id)
        answer = await leader.describe(here, THIS_BROKER)
        assert answer is not None
        [topic] = answer.topics
        [partition] = topic.partitions
        assert (partition.leader_id, [voter.replica_id for voter in partition.current_voters]) == (here, [here])
        refused = await leader.describe(here, NO_IDENTITY)
        assert refused is not None
        assert (refused.error_code, refused.topics) == (ErrorCode.cluster_authorization_failed, ())
        assert await leader.describe(BrokerId(here + 1), THIS_BROKER) is None
        await leader.close()

    with_members(story)
