"""Whether a client's batch may enter a log: rules over its header, and over its records within a budget."""

from cordwood.storage.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Compression,
)
from cordwood.storage.budget import RECORDS_MAX, Budget
from cordwood.storage.compaction.keys import keyless_records
from cordwood.storage.config import LogConfig
from cordwood.storage.contents import Examination, ExaminationInSteps, examine, examine_in_steps
from cordwood.storage.decompression import Content, whole_body
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp, KeysMissing
from cordwood.storage.steps import Steps
from cordwood.storage.types import NO_PRODUCER_ID


def admit(batch: Bytes, header: BatchHeader, config: LogConfig, now_ms: int, *, is_own: bool = False) -> None:
    """Raises BatchTooLarge, InvalidTimestamp or InvalidRecord for a batch that this topic does not take.

    The rules are Kafka's (`LogValidator`): one batch, its offsets from 0 on without gaps, nothing that only brokers
    write. With `is_own`, this broker wrote it, and its producer may have no sequence numbers.
    """
    size = len(batch)
    if size != LENGTH_PREFIX_BYTES + header.length:
        raise InvalidRecord("a produce request holds exactly one batch for each partition")
    if header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a produced batch is 0, and not {header.base_offset}")
    if size > config.batch_bytes_max:
        raise BatchTooLarge(f"a batch of {size} bytes exceeds max.message.bytes, which is {config.batch_bytes_max}")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records for {header.last_offset_delta + 1} offsets")
    if header.record_count > RECORDS_MAX:
        raise BatchTooLarge(f"a batch of {header.record_count} records exceeds the limit of {RECORDS_MAX}")
    if header.attributes & CODEC_MASK > Compression.ZSTD:
        raise InvalidRecord(f"unknown codec {header.attributes & CODEC_MASK}")
    if header.attributes & CONTROL:
        raise InvalidRecord("only brokers may write control batches")
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_id < 0 or (header.base_sequence < 0 and not is_own) or header.producer_epoch < 0
    ):
        raise InvalidRecord("an idempotent batch needs an epoch and a sequence number")
    if not config.log_append_time:
        _admit_timestamps(header, config, now_ms)


def admit_records(
    batch: Bytes, header: BatchHeader, config: LogConfig, budget: Budget, examine: Examination = examine
) -> None:
    """Raises InvalidRecord for records that differ from the header, KeysMissing for records that need a key.

    The rules are Kafka's (`LogValidator`). Raises OverBudget, with no harm done, where finding out costs more than
    `budget` has.
    """
    content: Bytes
    if header.attributes & CODEC_MASK:
        content, end = _unpacked(batch, header, budget)
    else:
        content = batch[HEADER_BYTES:]
        end = len(content)
    have_keys = examine(content, end, header.record_count, budget)
    if config.compacted and not have_keys:
        raise KeysMissing(keyless_records(content, end, header.record_count, budget))


def admit_records_in_steps(
    batch: Bytes, header: BatchHeader, config: LogConfig, budget: Budget, examine: ExaminationInSteps = examine_in_steps
) -> Steps[None]:
    """Do the same as `admit_records`, in steps. Decompression is in the first one."""
    content, end = _unpacked(batch, header, budget)
    have_keys = yield from examine(content, end, header.record_count, budget)
    if config.compacted and not have_keys:
        raise KeysMissing(keyless_records(content, end, header.record_count, budget))


def _unpacked(batch: Bytes, header: BatchHeader, budget: Budget) -> tuple[Content, int]:
    try:
        content, end, _ = whole_body(batch, header, budget)
    except CorruptBatch as corrupt:
        # Its checksum is right: another attempt would send the same bytes.
        raise InvalidRecord(str(corrupt)) from corrupt
    return content, end


def _admit_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms ahead")
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > config.timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms old")
