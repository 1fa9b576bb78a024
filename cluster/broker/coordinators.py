"""The users of internal topics in a broker: the coordinators of groups and of transactions, and the audit topic."""

import random
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from cordwood.cluster.broker.audit_topic import AuditTopic, audit_topic
from cordwood.cluster.config.group_configs import GroupConfigs
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import ReplicatedTopic, TopicCreation
from cordwood.cluster.groups.context import GroupContext, topics_in
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.groups.settings import group_settings, offsets_topic
from cordwood.cluster.groups.share.state_requests import Persister
from cordwood.cluster.metadata.quorum import Quorum
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.share.settings import share_topic
from cordwood.cluster.transactions.coordinator import TransactionCoordinator
from cordwood.cluster.transactions.markers import Codes, MarkerRow
from cordwood.cluster.transactions.settings import transaction_settings, transaction_topic
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.replication.replicas import Replicas


class Coordinators:
    """The factory of the coordinators and the audit topic of one broker."""

    def __init__(
        self,
        settings: Settings,
        quorum: Quorum,
        replicas: Replicas,
        wall_clock: Callable[[], int],
        rng: random.Random,
        group_configs: GroupConfigs,
    ) -> None:
        self._settings, self._quorum, self._replicas = settings, quorum, replicas
        self._wall_clock, self._rng = wall_clock, rng
        self._group_configs = group_configs

    def of_groups(self, turns: Turns, persister: Persister) -> GroupCoordinator:
        """Return the coordinator of groups."""
        return GroupCoordinator(
            context=GroupContext(
                group_settings(self._settings), lambda: topics_in(self._quorum.image), self._group_configs
            ),
            topic=self._topic(offsets_topic(self._settings)),
            topic_exists=lambda name: name in self._quorum.image.topics_by_name,
            wall_clock=self._wall_clock,
            rng=self._rng,
            turns=turns,
            persister=persister,
        )

    def of_transactions(
        self,
        send_markers: Callable[[int, Sequence[MarkerRow]], Awaitable[Codes]],
        next_producer_id: Callable[[], Awaitable[int]],
    ) -> TransactionCoordinator:
        """Return the coordinator of transactions."""
        return TransactionCoordinator(
            settings=transaction_settings(self._settings),
            topic=self._topic(transaction_topic(self._settings)),
            topic_id=self._topic_id,
            leader_of=self._leader_of,
            send_markers=send_markers,
            next_producer_id=next_producer_id,
            wall_clock=self._wall_clock,
        )

    def of_share_groups(self) -> ReplicatedTopic:
        """Return the internal topic of share groups."""
        return self._topic(share_topic(self._settings))

    def of_audit(self) -> AuditTopic:
        """Return the writer of the audit topic."""
        return AuditTopic(self._topic(audit_topic(self._settings)), self._wall_clock)

    def _topic(self, creation: TopicCreation) -> ReplicatedTopic:
        return ReplicatedTopic(creation, self._quorum, self._replicas, self._settings, self._wall_clock, self._rng)

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._quorum.image.topics_by_name.get(name)
        return None if topic is None else topic.id

    def _leader_of(self, partition: AddedPartition) -> int | None:
        known = self._quorum.image.partition(partition.topic_id, partition.partition)
        return None if known is None else known.leader
