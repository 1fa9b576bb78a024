"""Meaning of Produce error codes for the batch: definitely not appended, or unknown."""

from enum import Enum

from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode


class ProduceGuarantee(Enum):
    """The guarantee of an error code about the batch of a Produce request."""

    NOTHING = "It may be in the log, now or later."
    NOT_BY_THIS_REQUEST = "This request has written nothing. An earlier one with the same batch may have."
    NEVER = "No request with this batch has written it, or will."


PROMISES: dict[ErrorCode, tuple[ProduceGuarantee, str]] = {
    ErrorCode.message_too_large: (ProduceGuarantee.NEVER, "The batch is measured before it is appended, each time."),
    ErrorCode.record_list_too_large: (
        ProduceGuarantee.NEVER,
        "The batch is measured before it is appended, each time.",
    ),
    ErrorCode.invalid_record: (ProduceGuarantee.NEVER, "The records are checked before they are appended, each time."),
    ErrorCode.unsupported_for_message_format: (
        ProduceGuarantee.NEVER,
        "The format is checked before all else, each time.",
    ),
    ErrorCode.unsupported_compression_type: (
        ProduceGuarantee.NEVER,
        "The codec is checked before all else, each time.",
    ),
    ErrorCode.invalid_timestamp: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Checked before the append, by a clock that moves on.",
    ),
    ErrorCode.corrupt_message: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "The checksum is checked first; the line may do harm once.",
    ),
    ErrorCode.invalid_required_acks: (ProduceGuarantee.NOT_BY_THIS_REQUEST, "Checked before the append."),
    ErrorCode.invalid_topic_exception: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Internal topics are refused before the append.",
    ),
    ErrorCode.topic_authorization_failed: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Checked before the append; ACLs change.",
    ),
    ErrorCode.cluster_authorization_failed: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Checked before the append; ACLs change.",
    ),
    ErrorCode.policy_violation: (ProduceGuarantee.NOT_BY_THIS_REQUEST, "Checked before the append; policies change."),
    ErrorCode.unsupported_version: (ProduceGuarantee.NOT_BY_THIS_REQUEST, "The request was not read."),
    ErrorCode.not_enough_replicas: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Counted before the append; the in-sync set that shrinks afterwards has a code of its own.",
    ),
    ErrorCode.out_of_order_sequence_number: (
        ProduceGuarantee.NOT_BY_THIS_REQUEST,
        "Sequences are compared before the append.",
    ),
    ErrorCode.invalid_producer_epoch: (ProduceGuarantee.NOT_BY_THIS_REQUEST, "Epochs are compared before the append."),
    ErrorCode.unknown_producer_id: (ProduceGuarantee.NOT_BY_THIS_REQUEST, "Producers are looked up before the append."),
    ErrorCode.not_enough_replicas_after_append: (
        ProduceGuarantee.NOTHING,
        "It is in the leader's log, as the name says.",
    ),
    ErrorCode.request_timed_out: (ProduceGuarantee.NOTHING, "It is in the leader's log; the followers were slow."),
    ErrorCode.not_leader_or_follower: (
        ProduceGuarantee.NOTHING,
        "Sent before the append, and also to a batch that waits for its commit as the leader is deposed.",
    ),
    ErrorCode.unknown_topic_or_partition: (
        ProduceGuarantee.NOTHING,
        "Sent also to a batch that waits as its topic is deleted.",
    ),
    ErrorCode.kafka_storage_error: (
        ProduceGuarantee.NOTHING,
        "Sent also to a batch whose flush failed: a part may be on disk.",
    ),
    ErrorCode.unknown_server_error: (ProduceGuarantee.NOTHING, "The broker itself does not know what happened."),
    ErrorCode.network_exception: (
        ProduceGuarantee.NOTHING,
        "The connection broke: before, within or after the append.",
    ),
}
"""Guarantees by Kafka error code; a code that is not listed guarantees nothing.

"Each time" marks a decision that depends only on the batch and the topic configuration. NEVER holds as long as that
configuration does not change.
"""

LOCAL_PROMISES: dict[int, tuple[ProduceGuarantee, str]] = {
    KafkaError._QUEUE_FULL: (ProduceGuarantee.NEVER, "librdkafka did not take the record."),
    KafkaError._PURGE_QUEUE: (
        ProduceGuarantee.NEVER,
        "Purged from the queue; librdkafka has another code for what was sent.",
    ),
    KafkaError._PURGE_INFLIGHT: (ProduceGuarantee.NOTHING, "Purged after it was sent."),
    KafkaError._MSG_TIMED_OUT: (ProduceGuarantee.NOTHING, "librdkafka does not say whether it was ever sent."),
    KafkaError._FATAL: (ProduceGuarantee.NOTHING, "The producer ended; what was on its way is open."),
}
"""Guarantees by librdkafka's own error codes, which are below 0."""


def guarantee_of(code: int) -> ProduceGuarantee:
    """Return the guarantee of an error code: Kafka's codes and, below 0, librdkafka's."""
    if code < ErrorCode.unknown_server_error:
        return LOCAL_PROMISES.get(code, (ProduceGuarantee.NOTHING, ""))[0]
    try:
        return PROMISES[ErrorCode(code)][0]
    except (KeyError, ValueError):
        return ProduceGuarantee.NOTHING
