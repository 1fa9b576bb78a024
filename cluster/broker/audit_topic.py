"""The audit topic: the lines of all brokers' audit logs, as records of `__audit`.

A broker appends its lines to a partition that it leads. The file comes first: the topic may lack lines of a broker that
stopped, and have a line twice, which its sequence number and hash show.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.coordination.topic import PartitionLeadership, ReplicatedTopic, TopicCreation
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.proposals.topics import AUDIT
from cordwood.cluster.security.audit.log import AuditLog, NoAudit
from cordwood.replication.tasks import Tasks
from cordwood.storage.records import Record, encode

WAITING_MAX = 10_000
"""Lines in memory. The oldest give way: they are in the file."""
BATCH_MAX = 100
"""Lines in a batch, which is encoded on the event loop: some 40 KB, at most 1.6 MB."""
RETRY_S = 1.0
SEGMENT_BYTES = 100 << 20

_events = structlog.get_logger("audit")


def audit_topic(settings: Settings) -> TopicCreation:
    """Return how `__audit` is created."""
    return TopicCreation(
        AUDIT,
        partitions=settings.audit_log_topic_num_partitions,
        replication_factor=settings.audit_log_topic_replication_factor,
        segment_bytes=SEGMENT_BYTES,
        cleanup_policy="delete",
    )


class AuditTopic:
    """The writer of one broker's lines, between `start` and `close`."""

    def __init__(self, topic: ReplicatedTopic, wall_clock: Callable[[], int]) -> None:
        self._topic, self._wall_clock = topic, wall_clock
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)
        self._arrived = asyncio.Event()
        self._obstacle = ""
        self._tasks = Tasks()

    def start(self, audit: AuditLog | NoAudit) -> None:
        """Publish the lines of `audit` from now on."""
        audit.publish = self.publish
        self._tasks.repeat(self._write, "audit: topic")

    async def close(self) -> None:
        await self._tasks.close()

    def publish(self, lines: Sequence[bytes]) -> None:
        """Append lines soon, each as the value of a record."""
        self._waiting.extend(line.rstrip(b"\n") for line in lines)
        self._arrived.set()

    async def _write(self) -> None:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        lines = list(islice(self._waiting, BATCH_MAX))
        try:
            await self._topic.create()
            await self._append(self._leadership(), lines)
        except Refused as refusal:
            self._log_once(str(refusal))
            await asyncio.sleep(RETRY_S)
            return
        self._log_once("")
        for line in lines:
            # Lines that came meanwhile may have pushed out the oldest.
            if self._waiting and self._waiting[0] is line:
                self._waiting.popleft()

    async def _append(self, leadership: PartitionLeadership, lines: Sequence[bytes]) -> None:
        now = self._wall_clock()
        await self._topic.append(leadership, encode([Record(0, now, None, line) for line in lines]))

    def _leadership(self) -> PartitionLeadership:
        """Return the leadership of the first partition that this broker leads. Raises Refused if there is none."""
        partitions = range(self._topic.partition_count())
        found = next((led for index in partitions if (led := self._topic.leadership(index)) is not None), None)
        if found is None:
            raise Refused(ErrorCode.not_leader_or_follower, f"this broker leads no partition of {AUDIT}")
        return found

    def _log_once(self, obstacle: str) -> None:
        if obstacle and obstacle != self._obstacle:
            _events.warning("audit.not_in_topic", reason=obstacle, waiting=len(self._waiting))
        self._obstacle = obstacle
