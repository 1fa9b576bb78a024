"""Kafka error codes of storage, partition and disk errors."""

from kio.schema.errors import ErrorCode

from cordwood.replication.archive_view import ArchiveUnavailable
from cordwood.replication.refusal import PartitionRefused, Refusal
from cordwood.storage import errors
from cordwood.storage.budget import OverBudget


class TopicRefused(Exception):
    """The client has not the right that its request requires on the topic."""


class CodecRefused(Exception):
    """The version of the request is older than the batch's codec."""

    def __init__(self) -> None:
        super().__init__("Produce carries zstd batches from version 7 on (KIP-110)")


_BY_ERROR: dict[type[Exception], ErrorCode] = {
    TopicRefused: ErrorCode.topic_authorization_failed,
    CodecRefused: ErrorCode.unsupported_compression_type,
    errors.CorruptBatch: ErrorCode.corrupt_message,
    errors.DamagedLog: ErrorCode.corrupt_message,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.KeysMissing: ErrorCode.invalid_record,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.BatchTooLarge: ErrorCode.message_too_large,
    # Java's producer splits such a batch and sends the parts.
    OverBudget: ErrorCode.message_too_large,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.StaleProducerEpoch: ErrorCode.invalid_producer_epoch,
    errors.InvalidTransactionState: ErrorCode.invalid_txn_state,
    errors.TransactionCoordinatorFenced: ErrorCode.transaction_coordinator_fenced,
    # This broker has no archive, or the archive does not answer: clients try again.
    errors.NotLocal: ErrorCode.kafka_storage_error,
    ArchiveUnavailable: ErrorCode.kafka_storage_error,
    errors.OutOfResources: ErrorCode.kafka_storage_error,
    errors.DiskFull: ErrorCode.kafka_storage_error,
    # The replica has just been elected, and accepts batches after its next group commit.
    errors.TruncationUnsynced: ErrorCode.not_leader_or_follower,
    errors.DiskFailed: ErrorCode.kafka_storage_error,
}

_BY_REFUSAL: dict[Refusal, ErrorCode] = {
    Refusal.UNKNOWN: ErrorCode.unknown_topic_or_partition,
    Refusal.UNKNOWN_ID: ErrorCode.unknown_topic_id,
    Refusal.DELETED: ErrorCode.unknown_topic_or_partition,
    Refusal.NOT_LEADER: ErrorCode.not_leader_or_follower,
    Refusal.FENCED_EPOCH: ErrorCode.fenced_leader_epoch,
    Refusal.UNKNOWN_EPOCH: ErrorCode.unknown_leader_epoch,
    Refusal.NOT_KNOWN_YET: ErrorCode.offset_not_available,
    Refusal.NOT_ENOUGH_REPLICAS: ErrorCode.not_enough_replicas,
    # Retriable for every client: nothing was written, and the producer resends the batch after the refused ones.
    Refusal.FOLLOWS_REFUSED: ErrorCode.not_enough_replicas,
    Refusal.TIMED_OUT: ErrorCode.request_timed_out,
    Refusal.OFFLINE: ErrorCode.kafka_storage_error,
}

EXPECTED = (errors.StorageError, PartitionRefused, TopicRefused, CodecRefused)
"""Exceptions that become error codes. Any other exception is a bug in the broker."""


def code_of(error: Exception) -> ErrorCode:
    """Return the error code of one of `EXPECTED`, or of an OSError from a read."""
    if isinstance(error, PartitionRefused):
        return _BY_REFUSAL[error.reason]
    if isinstance(error, OSError):
        return ErrorCode.kafka_storage_error
    return _BY_ERROR.get(type(error), ErrorCode.unknown_server_error)
