"""Promises of Produce error codes about the batch: each code that the broker sends has one."""

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from cordwood.chaos.produce_errors import PROMISES, ProduceGuarantee, guarantee_of
from cordwood.cluster.kafka import refusals

NO_PRODUCE = {
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_topic_id,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
}


def test_every_refusal_of_a_produce_request_is_decided() -> None:
    reported = {*refusals._BY_ERROR.values(), *refusals._BY_REFUSAL.values()}
    assert reported - NO_PRODUCE <= set(PROMISES)
    assert all(reason.endswith((".", "?")) for _, reason in PROMISES.values())


@pytest.mark.parametrize(
    ("code", "promise"),
    [
        (ErrorCode.not_enough_replicas, ProduceGuarantee.NOT_BY_THIS_REQUEST),
        (ErrorCode.not_enough_replicas_after_append, ProduceGuarantee.NOTHING),
        (ErrorCode.not_leader_or_follower, ProduceGuarantee.NOTHING),
        (ErrorCode.invalid_record, ProduceGuarantee.NEVER),
        (KafkaError._QUEUE_FULL, ProduceGuarantee.NEVER),
        (KafkaError._PURGE_QUEUE, ProduceGuarantee.NOT_BY_THIS_REQUEST),
        (KafkaError._MSG_TIMED_OUT, ProduceGuarantee.NOTHING),
        (ErrorCode.offset_not_available, ProduceGuarantee.NOTHING),
        (30_000, ProduceGuarantee.NOTHING),
        (-30_000, ProduceGuarantee.NOTHING),
    ],
)
def test_a_promise_by_its_number(code: int, promise: ProduceGuarantee) -> None:
    assert guarantee_of(code) is promise
