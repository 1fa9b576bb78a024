"""The Produce response, hand-written: the outcome of each batch, and the pending request that they complete."""

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.leader_hints import Leader, current_leader, node_endpoints
from cordwood.cluster.kafka.refusals import code_of
from cordwood.cluster.kafka.transaction_verifier import TransactionProtocol, for_produce
from cordwood.cluster.kafka.wire import Topic, compact_string, legacy_string, uvarint
from cordwood.storage.batch import NO_TIMESTAMP
from cordwood.storage.errors import KeysMissing
from cordwood.storage.steps import Steps, some
from cordwood.storage.types import NO_OFFSET

STEPS_AT_ONCE = 32
"""A request of more steps is handled in slices of the loop's time."""
PIECES_PER_STEP = 64
"""Of the answer; a batch has one to five."""
NAMED_RECORDS_MAX = 20_000
"""Refused records that one answer names, of all batches: a small request may have millions in compressed batches."""
LEADERS_FROM = 10
"""From this version on, NOT_LEADER_OR_FOLLOWER names the current leader (KIP-951)."""

_HEAD = struct.Struct(">ii").pack
_FRAME_V9 = struct.Struct(">iib").pack
_HEAD_BYTES_V9 = 5
_PARTITION_V3 = struct.Struct(">ihqq").pack
_PARTITION_V5 = struct.Struct(">ihqqq").pack
_COUNT = struct.Struct(">i").pack
_RECORD_V8, _RECORD_V9 = struct.Struct(">ih").pack, struct.Struct(">ibb").pack
_THROTTLE = struct.Struct(">i").pack
_PARTITION_V9 = struct.Struct(">ihqqqbbb").pack
_LONE = struct.Struct(">ihqqqbbbxix")
"""The end of a response with one partition: its topic's tags, the throttle time and the response's tags follow it."""
_LONE_V9, _LONE_V9_BYTES = _LONE.pack, _LONE.size


Leaders = Mapping[tuple[Topic, int], Leader]
"""Current leaders, by topic and partition, of the partitions that this broker does not lead."""

_compact_name = functools.lru_cache(1024)(compact_string)


class ProduceOutcome:
    """The outcome of one partition's batch: its offset, or a Kafka error."""

    __slots__ = ("append_time", "base_offset", "code", "index", "log_start", "message", "pending", "refused_records")

    def __init__(self, pending: "PendingProduce", index: int) -> None:
        self.pending, self.index = pending, index
        self.code: int = ErrorCode.none
        self.base_offset: int = NO_OFFSET
        self.append_time = NO_TIMESTAMP
        self.log_start: int = NO_OFFSET
        self.message: str | None = None
        self.refused_records: Sequence[int] = ()
        """Records of the batch for which it was refused (KIP-467)."""

    spans_epochs = True

    @property
    def deadline(self) -> float:
        return self.pending.deadline

    def refused(self, error: Exception) -> None:
        self.code, self.base_offset, self.message = int(code_of(error)), NO_OFFSET, str(error)
        self.pending.slot.refused(self.code)
        if isinstance(error, KeysMissing):
            self.refused_records = self.pending.named(error.records)
        if self.code == ErrorCode.not_leader_or_follower:
            self.pending.is_misdirected = True

    def refused_by_coordinator(self, code: ErrorCode, protocol: TransactionProtocol) -> None:
        """Refuse a batch that the transaction coordinator has not verified."""
        self.code, self.message = int(for_produce(code, protocol)), f"The transaction is not verified: {code.name}."
        self.pending.slot.refused(self.code)

    def reached(self) -> None:
        self.pending.one_done()

    def failed(self, reason: Exception) -> None:
        self.refused(reason)
        self.pending.one_done()


Outcomes = Sequence[tuple[Topic, list[ProduceOutcome]]]
"""The outcomes of a request, by topic."""

FillLater = Callable[[Slot, Steps[bytes]], None]
"""Encodes a response of very many partitions in slices of the loop's time, and fills its slot."""


class PendingProduce:
    """A request of which the batches are appended and wait for their acknowledgement."""

    __slots__ = (
        "_named_left", "deadline", "fill_later", "find_leader", "head", "is_misdirected", "left", "slot", "topics",
        "transactional_id",
    )  # fmt: skip

    def __init__(
        self,
        head: RequestHead,
        slot: Slot,
        deadline: float,
        find_leader: Callable[[Topic, int, str], Leader | None],
        fill_later: FillLater,
        transactional_id: str | None,
    ) -> None:
        self.head, self.slot, self.deadline, self.transactional_id = head, slot, deadline, transactional_id
        self.find_leader, self.fill_later = find_leader, fill_later
        self.left = 1
        self.is_misdirected = False
        """Whether another broker leads one of the partitions."""
        self.topics: list[tuple[Topic, list[ProduceOutcome]]] = []
        self._named_left = NAMED_RECORDS_MAX

    def named(self, records: Sequence[int]) -> Sequence[int]:
        """Return those of a batch's refused records that the answer names: a request has a limit."""
        named = records[: self._named_left]
        self._named_left -= len(named)
        return named

    def one_done(self) -> None:
        self.left -= 1
        if self.left == 0:
            # An outcome refers to its request: clearing them here avoids a reference cycle for every request.
            topics, self.topics = self.topics, []
            lone = encode_lone(self.head, topics, self.slot.throttle_ms)
            if lone is not None:
                self.slot.fill([lone])
                return
            leaders = self._leaders(topics) if self.is_misdirected and self.head.version >= LEADERS_FROM else {}
            encoding = encode(self.head, topics, leaders, self.slot.throttle_ms)
            answer = some(encoding, STEPS_AT_ONCE)
            if answer is None:
                self.fill_later(self.slot, encoding)
            else:
                self.slot.fill([answer])

    def _leaders(self, topics: Outcomes) -> Leaders:
        listener = self.slot.connection.listener
        found = {
            (topic, outcome.index): self.find_leader(topic, outcome.index, listener)
            for topic, outcomes in topics
            for outcome in outcomes
            if outcome.code == ErrorCode.not_leader_or_follower
        }
        return {place: leader for place, leader in found.items() if leader is not None}


def encode(head: RequestHead, topics: Outcomes, leaders: Leaders, throttle_ms: int = 0) -> Steps[bytes]:
    """Return the response frame in the request's version."""
    if head.version >= 9:
        body = yield from _encode_flexible(topics, leaders, throttle_ms)
        return _FRAME_V9(_HEAD_BYTES_V9 + len(body), head.correlation_id, 0) + body
    body = yield from _encode_legacy(head, topics, throttle_ms)
    return struct.pack(">i", len(body)) + body


def encode_lone(head: RequestHead, topics: Outcomes, throttle_ms: int = 0) -> bytes | None:
    """Return the flexible response frame of one acknowledged batch; None for any other response."""
    topic, outcomes = topics[0] if len(topics) == 1 else ("", [])
    if head.version < 9 or len(outcomes) != 1 or outcomes[0].message is not None:
        return None
    (o,) = outcomes
    name_field = topic.bytes if type(topic) is UUID else _compact_name(topic)
    tail = _LONE_V9(o.index, o.code, o.base_offset, o.append_time, o.log_start, 1, 0, 0, throttle_ms)
    frame = _FRAME_V9(_HEAD_BYTES_V9 + 2 + len(name_field) + _LONE_V9_BYTES, head.correlation_id, 0)
    return b"".join((frame, b"\x02", name_field, b"\x02", tail))


def _encode_flexible(topics: Outcomes, leaders: Leaders, throttle_ms: int) -> Steps[bytes]:
    out = [uvarint(len(topics) + 1)]
    room = PIECES_PER_STEP
    for topic, outcomes in topics:
        out += (topic.bytes if type(topic) is UUID else _compact_name(topic), uvarint(len(outcomes) + 1))
        if not outcomes:
            yield
        for o in outcomes:
            if o.message is None:
                out.append(_PARTITION_V9(o.index, o.code, o.base_offset, o.append_time, o.log_start, 1, 0, 0))
            else:
                message = o.message.encode()
                out.append(_PARTITION_V5(o.index, o.code, o.base_offset, o.append_time, o.log_start))
                tags = current_leader(leaders.get((topic, o.index)))
                out += (_records_v9(o.refused_records), uvarint(len(message) + 1), message, tags)
            if len(out) >= room or o.refused_records:
                room = len(out) + PIECES_PER_STEP
                yield
        out.append(b"\x00")
    out += (_THROTTLE(throttle_ms), node_endpoints(leaders.values()) if leaders else b"\x00")
    return b"".join(out)


def _records_v9(numbers: Sequence[int]) -> bytes:
    """Return the refused records. The message of each is null: that of the batch is for all of them."""
    return uvarint(len(numbers) + 1) + b"".join([_RECORD_V9(number, 0, 0) for number in numbers])


def _records_v8(numbers: Sequence[int]) -> bytes:
    return _COUNT(len(numbers)) + b"".join([_RECORD_V8(number, -1) for number in numbers])


def _encode_legacy(head: RequestHead, topics: Outcomes, throttle_ms: int) -> Steps[bytes]:
    version = head.version
    out = [_HEAD(head.correlation_id, len(topics))]
    room = PIECES_PER_STEP
    for topic, outcomes in topics:
        out += (legacy_string(str(topic)), struct.pack(">i", len(outcomes)))
        for o in outcomes:
            if version >= 5:
                out.append(_PARTITION_V5(o.index, o.code, o.base_offset, o.append_time, o.log_start))
            elif version >= 2:
                out.append(_PARTITION_V3(o.index, o.code, o.base_offset, o.append_time))
            else:
                out.append(struct.pack(">ihq", o.index, o.code, o.base_offset))
            if version >= 8:
                out += (_records_v8(o.refused_records), b"\xff\xff" if o.message is None else legacy_string(o.message))
            if len(out) >= room or o.refused_records:
                room = len(out) + PIECES_PER_STEP
                yield
    if version >= 1:
        out.append(_THROTTLE(throttle_ms))
    return b"".join(out)
