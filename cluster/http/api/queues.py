"""Queues over HTTP: take records of a share group, and acknowledge, release, reject or renew them by their receipts.

The state is that of the share group (KIP-932): clients of the Kafka protocol and of HTTP share one queue.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.client.queue_messages import AcknowledgeQueueRequest
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.queues.member import Taken
from cordwood.cluster.http.queues.session import ACCEPT, REJECT, RELEASE, RENEW
from cordwood.cluster.http.records.encodings import Encoding, RecordHeader, written
from cordwood.cluster.http.refusal import NOT_NOW, HttpRefusal, check, json_response, sentence_of, status_of
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import READ_GROUP, READ_TOPIC
from cordwood.cluster.kafka.cluster_client import Unanswered
from cordwood.cluster.operations.queue_receipts import CHARS, Receipt

RECORDS_MAX = 500
TOPICS_MAX = 100
RECEIPTS_MAX = 1_000
WAIT_MS_MAX = 30_000
CONTENT_BYTES_MAX = 8 << 20
USUAL_CONTENT_BYTES = 1 << 20

GONE, CONFLICT = 410, 409
NOT_LOCKED = (
    "The record is not locked for this receipt: its lock has ended, or it is acknowledged already. If its lock has"
    " ended, it is delivered again."
)

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class Taking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The records that a client asks for."""

    topics: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)]
    max_records: Annotated[int, msgspec.Meta(ge=1, le=RECORDS_MAX)] = 10
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=CONTENT_BYTES_MAX)] = USUAL_CONTENT_BYTES
    """The response ends with the record at which keys and values together reach this many bytes."""
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MS_MAX)] = 1_000
    """The response is empty if there are no records after this time."""
    key_encoding: Encoding = Encoding.TEXT
    value_encoding: Encoding = Encoding.TEXT


class TakenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that is locked for this client. Keys and values are as those of records that are read."""

    receipt: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    """1 for the first delivery. A record is archived after `group.share.delivery.count.limit` deliveries."""
    timestamp: int | msgspec.UnsetType = msgspec.UNSET
    """Milliseconds since 1970."""
    key: msgspec.Raw | str | msgspec.UnsetType | None = msgspec.UNSET
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[RecordHeader] | msgspec.UnsetType = msgspec.UNSET
    undecodable: str | msgspec.UnsetType = msgspec.UNSET
    """Why the record has neither key nor value here: reject it, or release it for a client of the Kafka protocol."""


class TakenRecords(msgspec.Struct, frozen=True):
    """Records that are locked for this client."""

    records: list[TakenRecord]
    lock_ms: int
    """For how long the records are locked from now on. Then they are delivered again, unless they are renewed."""


class Receipts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Receipts of records that were taken, at any broker."""

    receipts: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=CHARS, max_length=CHARS)]],
        msgspec.Meta(min_length=1, max_length=RECEIPTS_MAX),
    ]


class Acknowledged(msgspec.Struct, frozen=True):
    """The receipts were accepted."""

    done: int
    lock_ms: int | None = None
    """For how long renewed records are locked from now on."""


class RefusedReceipt(msgspec.Struct, frozen=True):
    """A receipt that was refused. With status 503 the outcome is unknown, or the request may be repeated."""

    receipt: str
    status: int
    error: str
    code: str


class PartlyAcknowledged(msgspec.Struct, frozen=True):
    """Some receipts, or all, were refused; the others are done."""

    error: str
    code: str
    done: int
    refused: list[RefusedReceipt]


class _Outcome(NamedTuple):
    code: ErrorCode
    sentence: str


async def take_records(asked: ApiRequest[Nothing, Taking]) -> TakenRecords:
    """Take records, which are locked for the client until it acknowledges them, or the lock ends.

    The group is a share group, which the first request creates. A new group begins at its config
    `share.auto.offset.reset`. Ask for the same topics in each request: each set of topics is a member of the group.
    """
    context, wanted, group_id = asked.context, asked.body, asked.path["group"]
    for topic in dict.fromkeys(wanted.topics):
        context.topic(topic, READ_TOPIC)
    taken, lock_ms = await context.queues.take(
        context.cluster, group_id, wanted.topics, wanted.max_records, wanted.max_bytes, wanted.wait_ms / 1000
    )
    topics = context.image.topics_by_id
    try:
        records = [
            _written(topics[one.place.topic_id].name, one, wanted)
            async for one in context.turns.each(taken)
            if one.place.topic_id in topics
        ]
    except asyncio.CancelledError:
        context.queues.give_back(taken)
        raise
    return TakenRecords(records, lock_ms)


async def acknowledge_records(asked: ApiRequest[Nothing, Receipts]) -> web.Response:
    """Acknowledge records: they are done, and are not delivered again."""
    return await _acknowledge(asked, ACCEPT)


async def release_records(asked: ApiRequest[Nothing, Receipts]) -> web.Response:
    """Release records: they are delivered again at once, to any client."""
    return await _acknowledge(asked, RELEASE)


async def reject_records(asked: ApiRequest[Nothing, Receipts]) -> web.Response:
    """Reject records that no client can process: they are archived, and go to the dead-letter topic if there is one."""
    return await _acknowledge(asked, REJECT)


async def renew_records(asked: ApiRequest[Nothing, Receipts]) -> web.Response:
    """Renew the locks of records, for work that takes longer than the lock."""
    return await _acknowledge(asked, RENEW)


def _written(topic: str, taken: Taken, wanted: Taking) -> TakenRecord:
    acquired, receipt = taken.record, taken.receipt.text
    place = topic, taken.place.partition, acquired.offset, acquired.delivery_count
    if acquired.record is None:
        return TakenRecord(receipt, *place, undecodable=acquired.reason or "The record cannot be decoded.")
    read = written(topic, taken.place.partition, acquired.record, wanted.key_encoding, wanted.value_encoding)
    return TakenRecord(
        receipt, *place, read.timestamp, read.key, read.key_base64, read.value, read.value_base64, read.headers
    )


async def _acknowledge(asked: ApiRequest[Nothing, Receipts], acknowledge_type: int) -> web.Response:
    texts, group_id = list(dict.fromkeys(asked.body.receipts)), asked.path["group"]
    by_broker: defaultdict[int, list[str]] = defaultdict(list)
    for text in texts:
        receipt = Receipt.of(text)
        if receipt is None:
            raise HttpRefusal(422, f"{text!r} is not a receipt: send those of the records that were taken.")
        by_broker[receipt.broker_id].append(text)
    outcomes: dict[str, _Outcome] = {}
    asking = (
        _ask(asked.context, broker_id, group_id, acknowledge_type, of_broker, outcomes)
        for broker_id, of_broker in by_broker.items()
    )
    lock_ms = min(await asyncio.gather(*asking))
    refused = [
        RefusedReceipt(text, _status(outcomes[text].code), outcomes[text].sentence, outcomes[text].code.name.upper())
        for text in texts
        if outcomes[text].code is not ErrorCode.none
    ]
    done = len(texts) - len(refused)
    if not refused:
        return json_response(Acknowledged(done, lock_ms if acknowledge_type == RENEW else None))
    statuses = {one.status for one in refused}
    status = statuses.pop() if len(statuses) == 1 and not done else CONFLICT
    mistake = PartlyAcknowledged(_summary(done, refused), refused[0].code, done, refused)
    return json_response(mistake, status, {"Retry-After": "1"} if status == NOT_NOW else {})


async def _ask(
    context: Context,
    broker_id: int,
    group_id: str,
    acknowledge_type: int,
    receipts: Sequence[str],
    outcomes: dict[str, _Outcome],
) -> int:
    """Have the broker that took the records acknowledge them. Return the locks' duration in ms. Raises HttpRefusal."""
    if broker_id not in context.image.brokers:
        outcomes |= dict.fromkeys(receipts, _Outcome(ErrorCode.invalid_record_state, NOT_LOCKED))
        return 0
    request = AcknowledgeQueueRequest(group_id=group_id, acknowledge_type=acknowledge_type, receipts=tuple(receipts))
    try:
        response = await context.cluster.ask(broker_id, request)
    except Unanswered as unanswered:
        sentence = f"{unanswered} The outcome is unknown. If that broker is down, the record is delivered again."
        outcomes |= dict.fromkeys(receipts, _Outcome(ErrorCode.broker_not_available, sentence))
        return 0
    check(response.error_code, response.error_message)
    for text, number in zip(receipts, response.outcomes, strict=True):
        outcomes[text] = _outcome(ErrorCode(number))
    return int(response.lock_ms)


def _outcome(code: ErrorCode) -> _Outcome:
    if code is ErrorCode.not_leader_or_follower:
        # The new leader has no locks: it delivers the records again.
        code = ErrorCode.invalid_record_state
    return _Outcome(code, NOT_LOCKED if code is ErrorCode.invalid_record_state else sentence_of(code))


def _status(code: ErrorCode) -> int:
    return GONE if code is ErrorCode.invalid_record_state else status_of(code)


def _summary(done: int, refused: Sequence[RefusedReceipt]) -> str:
    if len(refused) == 1 and not done:
        return refused[0].error
    return f"{len(refused)} of {done + len(refused)} receipts were refused: {refused[0].error}"


_QUEUE = "/v1/queues/{group}"
_REFUSALS = (404, CONFLICT, GONE, 503)


def _route(action: str, answer: object) -> Route[Nothing, Receipts]:
    return Route(
        "POST",
        f"{_QUEUE}/{action}",
        answer,  # type: ignore[arg-type]
        Nothing,
        Receipts,
        Acknowledged,
        requires=(READ_GROUP,),
        each=(READ_TOPIC,),
        refusals=_REFUSALS,
    )


ROUTES = (
    Route(
        "POST",
        f"{_QUEUE}/take",
        take_records,
        Nothing,
        Taking,
        TakenRecords,
        requires=(READ_GROUP,),
        each=(READ_TOPIC,),
        refusals=(404, CONFLICT, 503),
    ),
    _route("acknowledge", acknowledge_records),
    _route("release", release_records),
    _route("reject", reject_records),
    _route("renew", renew_records),
)
