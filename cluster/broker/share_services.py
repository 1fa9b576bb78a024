"""The share groups' part of a broker: share partitions at their leaders, and the share coordinator."""

from collections.abc import Callable

from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import InternalTopic
from cordwood.cluster.kafka.cluster_client import ClusterClient
from cordwood.cluster.kafka.dead_letter_topics import DeadLetterProducer
from cordwood.cluster.kafka.share_states import ShareStateTransport
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.leaders import leader_of
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.proposals.topics import SHARE_GROUP_STATE
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.memory import MemoryPool
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.share.coordinator import ShareCoordinator
from cordwood.cluster.share.dead_letters import DeadLetters
from cordwood.cluster.share.persister import SharePersister
from cordwood.cluster.share.settings import share_settings
from cordwood.cluster.share.share_partitions import SharePartitions
from cordwood.cluster.share.share_sessions import ShareSessions
from cordwood.replication.partition import Partition
from cordwood.replication.waiters import EndOfTickScheduler
from cordwood.storage.timestamps import Found, first_at_or_after
from cordwood.storage.types import TopicPartition


class ShareServices:
    """The share partitions and the share coordinator of one broker: their construction and their lifecycle."""

    def __init__(
        self,
        settings: Settings,
        quorum: Quorum,
        topic: InternalTopic,
        client: ClusterClient,
        group_configs: GroupConfigs,
        decoding: DecodeQueue,
        pool: MemoryPool,
        wall_clock: Callable[[], int],
        end_of_tick: EndOfTickScheduler,
        turns: Turns,
    ) -> None:
        self._quorum, self._client, self._decoding = quorum, client, decoding
        of_shares = share_settings(settings)
        self.coordinator = ShareCoordinator(
            of_shares,
            topic,
            lambda key: quorum.image.partition(key.topic_id, key.partition) is not None,
            wall_clock,
            turns,
        )
        transport = ShareStateTransport(client, self.coordinator, of_shares.write_timeout_s)
        self.persister = SharePersister(self.coordinator.place, self._leader_of, transport, of_shares.write_timeout_s)
        letters = DeadLetters(DeadLetterProducer(settings, client, lambda: quorum.image), decoding, wall_clock)
        sessions = ShareSessions(of_shares.sessions_max, pool)
        self.partitions = SharePartitions(
            self.persister, sessions, letters, group_configs, self._offset_at, wall_clock, end_of_tick, turns
        )

    def start(self) -> None:
        """Load the stored states in the background."""
        self.coordinator.start()

    async def close(self) -> None:
        """Serve no share group any more. Stored states stay in the log."""
        await self.partitions.close()
        await self.persister.close()
        await self.coordinator.close()
        await self._client.close()

    def on_metadata_change(self, old: Image, new: Image) -> None:
        """Follow a metadata change; the quorum calls this after the replicas have their new roles."""
        self.coordinator.on_metadata_change(old, new)
        self.partitions.on_metadata_change(old, new)

    def roles_taken(self) -> None:
        """Follow the roles of replicas that were taken after the metadata change."""
        self.coordinator.roles_taken()

    def _leader_of(self, partition: int) -> int | None:
        return leader_of(TopicPartition(SHARE_GROUP_STATE, partition), self._quorum.image)

    async def _offset_at(self, partition: Partition, timestamp_ms: int) -> int | None:
        decoding, log = self._decoding.of(partition.directory), partition.log
        steps = first_at_or_after(log, timestamp_ms, partition.high_watermark)
        found: Found | None = await decoding.run_steps(steps)
        return None if found is None else found.offset
