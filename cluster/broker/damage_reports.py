"""Reports of damage that is found outside the replicas: to the partition that has it, the register and the log."""

import re
from collections.abc import Callable
from uuid import UUID

import structlog

from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.replication.log_directory import TOPICS
from cordwood.replication.partition import Partition
from cordwood.storage.errors import DamagedLog
from cordwood.storage.scrub import Undecodable

_PARTITION_PATH = re.compile(rf"/{TOPICS}/(?P<topic>[0-9a-f-]{{36}})/(?P<partition>[0-9]+)/")

_events = structlog.get_logger("broker")


class DamageReports:
    """The reports of one broker."""

    def __init__(self, register: DamageRegister, with_id: Callable[[UUID, int], Partition | None]) -> None:
        """`with_id` returns a partition that this broker holds."""
        self._register, self._with_id = register, with_id

    def undecodable(self, partition: Partition, found: Undecodable) -> None:
        """Log an undecodable batch once. All replicas have the same bytes from the producer, so the batch is kept."""
        if self._register.note_undecodable(found.path, found.position):
            _events.error(
                "batch.undecodable",
                topic=partition.topic,
                partition=partition.index,
                offset=found.offset,
                end_offset=found.end_offset,
                reason=found.reason,
            )

    def damaged(self, damage: DamagedLog) -> None:
        """Report damage to the partition whose log has the damaged file, if this broker holds that partition."""
        match = _PARTITION_PATH.search(damage.path)
        if match and (partition := self._with_id(UUID(match["topic"]), int(match["partition"]))) is not None:
            partition.report_damage(damage)

    def repaired(self, damage: DamagedLog) -> None:
        """Record and log a damaged file that has been rewritten."""
        self._register.note(damage)
        self._register.done(damage)
        _events.error("file.damaged", damage=str(damage))
