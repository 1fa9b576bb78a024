"""Whether a client's batch may enter a log: rules over its header and, on compacted topics only, its keys."""

from cordwood.storage.batch import (
    CODEC_MASK,
    CONTROL,
    LENGTH_PREFIX_BYTES,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
)
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import BatchTooLarge, InvalidRecord, InvalidTimestamp
from cordwood.storage.records import decode


def admit(batch: Bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raises BatchTooLarge, InvalidTimestamp or InvalidRecord for a batch that this topic does not take.

    The rules are Kafka's (`LogValidator`): one batch, its offsets without gaps, nothing that only brokers write.
    """
    size = len(batch)
    if size != LENGTH_PREFIX_BYTES + header.length:
        raise InvalidRecord("a produce request holds exactly one batch for each partition")
    if size > config.batch_bytes_max:
        raise BatchTooLarge(f"a batch of {size} bytes where max.message.bytes is {config.batch_bytes_max}")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records for {header.last_offset_delta + 1} offsets")
    if header.attributes & CODEC_MASK > Compression.ZSTD:
        raise InvalidRecord(f"unknown codec {header.attributes & CODEC_MASK}")
    if header.attributes & (CONTROL | TRANSACTIONAL):
        kind = "control batches are written by brokers only" if header.is_control else "transactions are not served yet"
        raise InvalidRecord(kind)
    if header.producer_id != NO_PRODUCER and (
        header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0
    ):
        raise InvalidRecord("an idempotent batch needs an epoch and a sequence number")
    if not config.log_append_time:
        _admit_timestamps(header, config, now_ms)
    if config.compacted and any(record.key is None for record in decode(bytes(batch))):
        raise InvalidRecord("a compacted topic takes only records with a key")


def _admit_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead")
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > config.timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms old")
