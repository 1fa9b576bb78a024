"""Dead-letter queues: copies of undeliverable records in a topic of the share group's choice (KIP-1191).

The broker writes the copies, and may write to all topics. A member must not write to any topic by rejecting records: a
topic is used only if its config permits it, and if its name has the broker's prefix.
"""

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

import structlog

from cordwood.cluster.config.group_configs import ShareConfig
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.resources.decode_queue import SEARCH_BYTES, DecodeQueue
from cordwood.cluster.share.states import SharePartitionKey
from cordwood.replication.partition import Partition
from cordwood.storage.batch import peek, split
from cordwood.storage.errors import OffsetOutOfRange, StorageError
from cordwood.storage.records import Header, Record, decode, encode
from cordwood.storage.steps import Steps

TOPIC, PARTITION, OFFSET = "__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset"
GROUP, DELIVERY_COUNT = "__dlq.errors.group", "__dlq.errors.delivery.count"
MESSAGE = "__dlq.errors.message"
"""The headers of a copy, which are Kafka's."""

RECORDS_MAX = 500
"""Records in one batch of the dead-letter queue."""
READ_BYTES = 1 << 20
READS_MAX = 4
"""Copies whose records are read at the same time, from disks and from the archive: each has READ_BYTES in memory."""
OVERHEAD_BYTES = 600
"""Room for the headers of a copy and the fields of a record: a group id has up to 255 characters."""
RETRY_S, RETRY_MAX_S = 0.1, 10.0
UNREADABLE_S = 600.0
"""Time for which records could not be read after which their copies have no contents: the records may be lost.

Archived records may be unreadable because the store does not answer. The copies name their offsets, so that they can be
read later.
"""

_events = structlog.get_logger("share")


class DeadLetterCause(Enum):
    """Why a record is undeliverable, in Kafka's words."""

    REJECTED = "Offset rejected by client."
    DELIVERY_COUNT = "Offset delivery count exceeded the threshold."


class Undeliverable(NamedTuple):
    """Undeliverable records of a share partition, from `start` up to `end`."""

    key: SharePartitionKey
    partition: Partition
    start: int
    end: int
    delivery_count: int
    cause: DeadLetterCause


class Copied(NamedTuple):
    """Records that are copied and committed: the offset after them, and how many copies lack the contents."""

    end: int
    without_contents: int = 0


class DeadLetterTopics(Protocol):
    """The topics of dead-letter queues, and appends to them."""

    def is_usable(self, topic: str) -> bool:
        """Return whether a topic may be a dead-letter queue: it exists, or is created by the first append."""
        ...

    def batch_bytes_max(self, topic: str) -> int:
        """Return the size of the largest batch that the topic takes."""
        ...

    async def append(self, topic: str, partition: int, batch: bytes) -> None:
        """Append a batch, and wait until it is committed. `partition` is taken modulo the partitions of the topic.

        Raises Refused: then the batch may or may not be appended.
        """
        ...


class DeadLetters:
    """The writer of a broker's dead letters."""

    def __init__(self, topics: DeadLetterTopics, decoding: DecodeQueue, wall_clock: Callable[[], int]) -> None:
        self._topics, self._decoding, self._wall_clock = topics, decoding, wall_clock
        # A store that does not answer delays only the copies of archived records.
        self._room, self._archive_room = asyncio.Semaphore(READS_MAX), asyncio.Semaphore(READS_MAX)
        self._unreadable_since: dict[SharePartitionKey, float] = {}
        """The time of the first of the failed reads since the last that succeeded, by the loop's clock."""

    def is_usable(self, config: ShareConfig) -> bool:
        """Return whether undeliverable records of a group with these configs are copied."""
        return bool(config.dead_letter_topic) and self._topics.is_usable(config.dead_letter_topic)

    async def copy(self, letters: Undeliverable, config: ShareConfig, is_wanted: Callable[[], bool]) -> Copied | None:
        """Copy records, at least once each. Return up to where they are copied and committed.

        None if the dead-letter queue may not be used. Tries again until that, or until the copy is not wanted.
        """
        try:
            return await self._copy_until(letters, config, is_wanted)
        finally:
            if not is_wanted():
                self._unreadable_since.pop(letters.key, None)

    async def _copy_until(
        self, letters: Undeliverable, config: ShareConfig, is_wanted: Callable[[], bool]
    ) -> Copied | None:
        pause_s = RETRY_S
        while is_wanted():
            if not self.is_usable(config):
                _events.warning(
                    "share.dead_letters_not_copied",
                    share_partition=str(letters.key),
                    topic=config.dead_letter_topic,
                    records=letters.end - letters.start,
                )
                return None
            try:
                return await self._copy(letters, config)
            except (Refused, StorageError) as error:
                _events.warning(
                    "share.dead_letters_delayed",
                    share_partition=str(letters.key),
                    topic=config.dead_letter_topic,
                    reason=str(error),
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        return Copied(letters.start)

    async def _copy(self, letters: Undeliverable, config: ShareConfig) -> Copied:
        topic = config.dead_letter_topic
        end = min(letters.end, letters.start + RECORDS_MAX)
        size, bytes_max = 0, self._topics.batch_bytes_max(topic)
        known: dict[int, Record] | None = {}
        if config.dead_letter_copy:
            known, end = await self._contents(letters, end, bytes_max)
        is_unreadable, known = known is None, known or {}
        copies: list[Record] = []
        lacking = 0
        for offset in range(letters.start, end):
            copy = self._copy_of(offset, known.get(offset), letters)
            is_large = offset in known and _size(copy) > bytes_max
            if is_large:
                # Also alone in its batch it would be refused for ever.
                copy = self._copy_of(offset, None, letters)
            size += _size(copy)
            if copies and size > bytes_max:
                end = offset
                break
            copies.append(copy)
            lacking += is_large or is_unreadable
        await self._topics.append(topic, letters.key.partition, encode(copies))
        return Copied(end, lacking)

    async def _contents(self, letters: Undeliverable, end: int, bytes_max: int) -> tuple[dict[int, Record] | None, int]:
        """Return records by offset, and their end; None in their place if they have been unreadable for long.

        Raises StorageError.
        """
        partition, now = letters.partition, asyncio.get_running_loop().time()
        is_archived = letters.start < partition.log.local_start
        # At least one batch is read, whatever its size.
        size = min(max(READ_BYTES, partition.log.config.batch_bytes_max), SEARCH_BYTES)
        try:
            async with self._archive_room if is_archived else self._room, self._decoding.hold(size):
                found = await self._read(partition, letters.start, end, max(bytes_max, 1))
        except StorageError as error:
            since = self._unreadable_since.setdefault(letters.key, now)
            if now - since < UNREADABLE_S:
                raise
            _events.warning(
                "share.dead_letters_without_contents",
                share_partition=str(letters.key),
                start=letters.start,
                end=end,
                reason=str(error),
            )
            return None, end
        self._unreadable_since.pop(letters.key, None)
        return found

    async def _read(self, partition: Partition, start: int, end: int, bytes_max: int) -> tuple[dict[int, Record], int]:
        """Return the records from `start` on by offset, up to `end` or until they have `bytes_max`, and their end.

        Records that were deleted are left out. Records that are not on the disk are read from the archive. Raises
        StorageError if the first one cannot be read; later ones are left to the next read then.
        """
        log, archive = partition.log, partition.context.archive
        decoding = self._decoding.of(partition.directory)
        found: dict[int, Record] = {}
        offset, size = start, 0
        while (offset := max(offset, log.log_start)) < end and size < bytes_max:
            try:
                if offset < log.local_start:
                    data = await archive.batches(partition, offset, READ_BYTES)
                else:
                    data = await partition.directory.run_blocking(log.read, offset, READ_BYTES, end)
            except OffsetOutOfRange:
                # Retention has deleted it meanwhile, on this disk or altogether.
                if offset < max(log.log_start, log.local_start):
                    continue
                return found, end
            except StorageError:
                if not found:
                    raise
                return found, offset
            if data:
                offset, added = await decoding.run_steps(_decode(data, offset, end, bytes_max - size, found))
                size += added
            elif offset < log.local_start:
                # A gap of a compacted log, up to the next record on the disk.
                offset = log.local_start
            else:
                return found, end
        return found, min(offset, end)

    def _copy_of(self, offset: int, record: Record | None, letters: Undeliverable) -> Record:
        origin: tuple[Header, ...] = (
            (TOPIC, letters.partition.topic.encode()),
            (PARTITION, str(letters.key.partition).encode()),
            (OFFSET, str(offset).encode()),
            (GROUP, letters.key.group_id.encode()),
            (DELIVERY_COUNT, str(letters.delivery_count).encode()),
            (MESSAGE, letters.cause.value.encode()),
        )
        if record is None:
            return Record(0, self._wall_clock(), None, None, origin)
        return Record(0, self._wall_clock(), record.key, record.value, (*record.headers, *origin))


def _decode(data: bytes, start: int, end: int, bytes_max: int, found: dict[int, Record]) -> Steps[tuple[int, int]]:
    """Add the records from `start` up to `end` to `found`, until they have `bytes_max`.

    Return the offset after the last one that was read, and their size.
    """
    offset, size = start, 0
    for batch in split(data):
        for record in decode(batch):
            if record.offset >= end or size >= bytes_max:
                return max(offset, min(record.offset, end)), size
            if record.offset >= start:
                found[record.offset] = record
                size += _size(record)
                offset = record.offset + 1
        offset = max(offset, peek(batch).end)
        yield
    return offset, size


def _size(record: Record) -> int:
    headers: Iterator[int] = (len(name) + len(value or b"") for name, value in record.headers)
    return OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + sum(headers)
