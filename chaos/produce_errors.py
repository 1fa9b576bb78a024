"""Meaning of Produce error codes for the batch: definitely not appended, or unknown."""

from enum import Enum

from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode


class ProduceGuarantee(Enum):
    """The guarantee of an error code about the batch of a Produce request."""

    NOTHING = "It may be in the log, now or later."
    NOT_BY_THIS_REQUEST = "This request has written nothing. An earlier one with the same batch may have."
    NEVER = "No request with this batch has written it, or will."


NOTHING, NOT_THIS, NEVER = ProduceGuarantee

PROMISES: dict[ErrorCode, tuple[ProduceGuarantee, str]] = {
    ErrorCode.message_too_large: (NEVER, "The batch is measured before it is appended, each time."),
    ErrorCode.record_list_too_large: (NEVER, "The batch is measured before it is appended, each time."),
    ErrorCode.invalid_record: (NEVER, "The records are checked before they are appended, each time."),
    ErrorCode.unsupported_for_message_format: (NEVER, "The format is checked before all else, each time."),
    ErrorCode.unsupported_compression_type: (NEVER, "The codec is checked before all else, each time."),
    ErrorCode.invalid_timestamp: (NOT_THIS, "Checked before the append, by a clock that moves on."),
    ErrorCode.corrupt_message: (NOT_THIS, "The checksum is checked first; the network may flip a bit once."),
    ErrorCode.invalid_required_acks: (NOT_THIS, "Checked before the append."),
    ErrorCode.invalid_topic_exception: (NOT_THIS, "Internal topics are refused before the append."),
    ErrorCode.topic_authorization_failed: (NOT_THIS, "Checked before the append; ACLs change."),
    ErrorCode.cluster_authorization_failed: (NOT_THIS, "Checked before the append; ACLs change."),
    ErrorCode.policy_violation: (NOT_THIS, "Checked before the append; policies change."),
    ErrorCode.unsupported_version: (NOT_THIS, "The request was not read."),
    ErrorCode.not_enough_replicas: (
        NOT_THIS,
        "Counted before the append; the in-sync set that shrinks afterwards has a code of its own.",
    ),
    ErrorCode.out_of_order_sequence_number: (NOT_THIS, "Sequences are compared before the append."),
    ErrorCode.invalid_producer_epoch: (NOT_THIS, "Epochs are compared before the append."),
    ErrorCode.invalid_txn_state: (NOT_THIS, "Transactions are compared before the append."),
    ErrorCode.unknown_producer_id: (NOT_THIS, "Producers are looked up before the append."),
    ErrorCode.not_enough_replicas_after_append: (NOTHING, "It is in the leader's log, as the name says."),
    ErrorCode.request_timed_out: (NOTHING, "It is in the leader's log; the followers were slow."),
    ErrorCode.not_leader_or_follower: (
        NOTHING,
        "Sent before the append, and also to a batch that waits for its commit as the leader is deposed.",
    ),
    ErrorCode.unknown_topic_or_partition: (NOTHING, "Sent also to a batch that waits as its topic is deleted."),
    ErrorCode.kafka_storage_error: (NOTHING, "Sent also to a batch whose flush failed: a part may be on disk."),
    ErrorCode.unknown_server_error: (NOTHING, "The broker itself does not know what happened."),
    ErrorCode.network_exception: (NOTHING, "The connection broke: before, within or after the append."),
}
"""Guarantees by Kafka error code; a code that is not listed guarantees nothing.

"Each time" marks a decision that depends only on the batch and the topic configuration. NEVER holds as long as that
configuration does not change.
"""

LOCAL_PROMISES: dict[int, tuple[ProduceGuarantee, str]] = {
    KafkaError._QUEUE_FULL: (NEVER, "librdkafka did not take the record."),
    KafkaError._PURGE_QUEUE: (
        NOT_THIS,
        "Purged from a queue, where a record is also between two tries: an earlier one may have been written.",
    ),
    KafkaError._PURGE_INFLIGHT: (NOTHING, "Purged after it was sent."),
    KafkaError._MSG_TIMED_OUT: (NOTHING, "librdkafka does not say whether it was ever sent."),
    KafkaError._FATAL: (NOTHING, "The producer ended; what was on its way is open."),
}
"""Guarantees by librdkafka's own error codes, which are below 0."""


def guarantee_of(code: int) -> ProduceGuarantee:
    """Return the guarantee of an error code: Kafka's codes and, below 0, librdkafka's."""
    if code < ErrorCode.unknown_server_error:
        return LOCAL_PROMISES.get(code, (NOTHING, ""))[0]
    try:
        return PROMISES[ErrorCode(code)][0]
    except (KeyError, ValueError):
        return NOTHING
