"""What a change of the metadata means for this broker's replicas: which to open, to configure, to forget."""

from collections.abc import Callable

import structlog

from cordwood.cluster.config import Settings
from cordwood.cluster.config_rows import BrokerConfig
from cordwood.cluster.metadata.image import Image, TopicImage, changed_topics
from cordwood.cluster.topic_configs import log_config
from cordwood.replication.housekeeping import Housekeeping
from cordwood.replication.partition import PartitionRefused, Place
from cordwood.replication.replicas import Replicas
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import StorageError

_events = structlog.get_logger("replicas")


class Assignments:
    """Keeps the replicas in step with the image. `follow` is the quorum's listener."""

    def __init__(
        self, replicas: Replicas, housekeeping: Housekeeping, settings: Settings, wall_clock: Callable[[], int]
    ) -> None:
        self._replicas, self._housekeeping = replicas, housekeeping
        self._settings, self._wall_clock = settings, wall_clock

    def begin(self, image: Image) -> None:
        """Open every replica that the image assigns to this broker, recovering it. Waits for the disk."""
        for topic in image.topics_by_id.values():
            self._open(topic, 0, self._log_config(topic, image))
        # A topic that exists is no orphan, even where none of its replicas could be opened.
        orphans = [orphan for orphan in self._replicas.orphans() if orphan[1] not in image.topics_by_id]
        self._housekeeping.remove_orphans(orphans)

    def follow(self, old: Image, new: Image) -> None:
        """Do what the change asks for. A disk that fails costs replicas, never the metadata: nothing is raised."""
        for before, after in changed_topics(old, new):
            if after is None:
                assert before is not None, "a change has at least one side"
                self._remove(before)
            elif before is None:
                self._open(after, 0, self._log_config(after, new))
            else:
                config = self._log_config(after, new)
                self._open(after, len(before.partitions), config)
                self._replicas.configure(after.name, config)
        if old.broker_configs is not new.broker_configs:
            for topic in new.topics_by_id.values():
                self._replicas.configure(topic.name, self._log_config(topic, new))

    def _remove(self, topic: TopicImage) -> None:
        try:
            self._housekeeping.remove_topic(self._replicas.remove(topic.name))
        except OSError as error:
            # What is left of it is an orphan at the next start.
            _events.error("topic.not_removed", topic=topic.name, error=str(error))

    def _open(self, topic: TopicImage, first: int, config: LogConfig) -> None:
        now_ms = self._wall_clock()
        for index in range(first, len(topic.partitions)):
            partition = topic.partitions[index]
            if partition.leader != self._settings.node_id:
                continue
            place = Place(topic.name, index, topic.id)
            try:
                damage = self._replicas.open(place, partition.leader_epoch, config, now_ms)
            except (PartitionRefused, StorageError, OSError) as error:
                # An OSError has taken the log directory offline before it came here (Replicas.open).
                reason = str(error.__cause__ or error)
                _events.error("partition.offline", topic=topic.name, partition=index, reason=reason)
                continue
            for damaged in damage:
                _events.error("log.damaged", topic=topic.name, partition=index, damage=str(damaged))

    def _log_config(self, topic: TopicImage, image: Image) -> LogConfig:
        broker = BrokerConfig(
            self._settings, image.configs_of_broker(self._settings.node_id), image.configs_of_all_brokers
        )
        return log_config(topic.configs, broker)
