"""Promises of Produce error codes about the batch: each code that the broker sends has one."""

import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from cordwood.chaos.produce_errors import PROMISES, Promise, promise_of
from cordwood.cluster.kafka import refusals

READS_ONLY = {
    ErrorCode.offset_out_of_range,
    ErrorCode.unknown_topic_id,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
}


def test_every_refusal_of_a_produce_request_is_decided() -> None:
    told = {*refusals._BY_ERROR.values(), *refusals._BY_REFUSAL.values()}
    assert told - READS_ONLY <= set(PROMISES)
    assert all(reason.endswith((".", "?")) for _, reason in PROMISES.values())


@pytest.mark.parametrize(
    ("code", "promise"),
    [
        (ErrorCode.not_enough_replicas, Promise.NOT_BY_THIS_REQUEST),
        (ErrorCode.not_enough_replicas_after_append, Promise.NOTHING),
        (ErrorCode.not_leader_or_follower, Promise.NOTHING),
        (ErrorCode.invalid_record, Promise.NEVER),
        (KafkaError._PURGE_QUEUE, Promise.NEVER),
        (KafkaError._MSG_TIMED_OUT, Promise.NOTHING),
        (ErrorCode.offset_not_available, Promise.NOTHING),
        (30_000, Promise.NOTHING),
        (-30_000, Promise.NOTHING),
    ],
)
def test_a_promise_by_its_number(code: int, promise: Promise) -> None:
    assert promise_of(code) is promise
