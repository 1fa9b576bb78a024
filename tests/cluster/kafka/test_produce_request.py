"""The Produce request: the fast path for a single small batch gives the same result as the general decoder."""

import struct
from uuid import UUID

import pytest

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.produce_request import ITEMS_MAX, ITEMS_PER_STEP, ProduceRequest, read_lone, read_produce
from cordwood.cluster.kafka.wire import Malformed, uvarint
from cordwood.storage.steps import at_once

ACKS_ALL, TIMEOUT_MS = -1, 30_000
TOPIC_ID = UUID(int=0xFF << 120 | 7)
WITH_IDS = 13
TAGGED = b"\x01\x07\x02ab"
"""One tagged field, number 7, of two bytes."""


def partition(index: int, records: bytes | None, tags: bytes = b"\x00") -> bytes:
    length = uvarint(0 if records is None else len(records) + 1)
    return struct.pack(">i", index) + length + (records or b"") + tags


def topic(name: str, *partitions: bytes, tags: bytes = b"\x00") -> bytes:
    return uvarint(len(name) + 1) + name.encode() + uvarint(len(partitions) + 1) + b"".join(partitions) + tags


def topic_with_id(topic_id: UUID, *partitions: bytes, tags: bytes = b"\x00") -> bytes:
    return topic_id.bytes + uvarint(len(partitions) + 1) + b"".join(partitions) + tags


def body(*topics: bytes, transactional_id: bytes = b"\x00", tags: bytes = b"\x00") -> bytes:
    settings = struct.pack(">hi", ACKS_ALL, TIMEOUT_MS)
    return transactional_id + settings + uvarint(len(topics) + 1) + b"".join(topics) + tags


def read(content: bytes, version: int = 11) -> ProduceRequest:
    """Decode a request by the full decoder, to which the fast path for a single batch must agree."""
    head, frame = RequestHead(0, version, 1, "", 0), memoryview(content)
    lone, request = read_lone(head, frame), at_once(read_produce(head, frame))
    assert lone in (None, request)
    return request


def is_lone(content: bytes) -> bool:
    return read_lone(RequestHead(0, 11, 1, "", 0), memoryview(content)) is not None


def found(request: ProduceRequest) -> list[tuple[str | UUID, list[tuple[int, bytes]]]]:
    return [(name, [(data.partition, bytes(data.records)) for data in items]) for name, items in request.topics]


@pytest.mark.parametrize("records", [b"r", b"r" * 126, b"r" * 127, b"r" * 20_000])
@pytest.mark.parametrize("name", ["t", "t" * 125, "t" * 126, "t" * 249])
def test_a_lone_batch_is_found_whatever_the_lengths(name: str, records: bytes) -> None:
    content = body(topic(name, partition(5, records)))
    request = read(content)
    assert is_lone(content) == (len(name) < 127)
    assert found(request) == [(name, [(5, records)])]
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, ACKS_ALL, TIMEOUT_MS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (body(topic("t", partition(1, b"a"), partition(2, b"b"))), [("t", [(1, b"a"), (2, b"b")])]),
        (
            body(topic("t", partition(1, b"a")), topic("u", partition(2, b"b"))),
            [("t", [(1, b"a")]), ("u", [(2, b"b")])],
        ),
        (body(topic("t", partition(1, None))), [("t", [(1, b"")])]),
        (body(topic("t", partition(1, b""))), [("t", [(1, b"")])]),
        (body(topic("t", partition(1, b"a", TAGGED))), [("t", [(1, b"a")])]),
        (body(topic("t", partition(1, b"a"), tags=TAGGED)), [("t", [(1, b"a")])]),
        (body(topic("t", partition(1, b"a")), tags=TAGGED), [("t", [(1, b"a")])]),
        (body(topic("t")), [("t", [])]),
        (body(), []),
    ],
)
def test_whatever_is_not_a_lone_batch_goes_the_long_way(
    content: bytes, expected: list[tuple[str, list[tuple[int, bytes]]]]
) -> None:
    assert found(read(content)) == expected


def test_a_transactional_id_is_not_taken_for_none() -> None:
    request = read(body(topic("t", partition(1, b"a")), transactional_id=uvarint(3) + b"id"))
    assert (request.transactional_id, found(request)) == ("id", [("t", [(1, b"a")])])


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_names_are_read_alike_in_all_flexible_versions(version: int) -> None:
    content = body(topic("t", partition(1, b"a")))
    assert found(read(content, version)) == found(read(content))


@pytest.mark.parametrize("records", [b"r", b"r" * 20_000])
@pytest.mark.parametrize("topic_id", [TOPIC_ID, UUID(int=7), UUID(int=0)])
def test_a_lone_batch_of_a_topic_id_is_found(topic_id: UUID, records: bytes) -> None:
    content = body(topic_with_id(topic_id, partition(5, records)))
    assert read_lone(RequestHead(0, WITH_IDS, 1, "", 0), memoryview(content)) is not None
    assert found(read(content, WITH_IDS)) == [(topic_id, [(5, records)])]


def test_several_topic_ids_go_the_long_way() -> None:
    two = topic_with_id(TOPIC_ID, partition(1, b"a"), partition(2, b"b"))
    content = body(two, topic_with_id(UUID(int=9), partition(0, None), tags=TAGGED))
    assert read_lone(RequestHead(0, WITH_IDS, 1, "", 0), memoryview(content)) is None
    assert found(read(content, WITH_IDS)) == [(TOPIC_ID, [(1, b"a"), (2, b"b")]), (UUID(int=9), [(0, b"")])]


@pytest.mark.parametrize(
    ("version", "one"),
    [(11, topic("name", partition(5, b"records"))), (WITH_IDS, topic_with_id(TOPIC_ID, partition(5, b"records")))],
)
def test_every_cut_of_a_lone_batch_is_malformed(version: int, one: bytes) -> None:
    whole = body(one)
    for length in range(len(whole) - 1):
        with pytest.raises(Malformed):
            read(whole[:length], version)


def test_a_name_that_no_topic_may_have_is_malformed() -> None:
    with pytest.raises(Malformed, match="a topic name of 250 characters"):
        read(body(topic("t" * 250, partition(5, b"records"))))


def test_a_length_beyond_the_frame_is_malformed() -> None:
    lying = struct.pack(">i", 5) + uvarint(1 << 27) + b"records\x00"
    with pytest.raises(Malformed):
        read(body(topic("name", lying)))
    with pytest.raises(Malformed):
        read(body(b"\x05\xff\xff\xff\xff" + uvarint(2) + partition(5, b"r") + b"\x00"))


@pytest.mark.parametrize("topics", [1, 2])
def test_batches_above_the_limit_are_refused_before_they_are_decoded(topics: int) -> None:
    batches = ITEMS_MAX // topics + 1
    content = body(*(topic("t", *[partition(0, b"")] * batches) for _ in range(topics)))
    steps = read_produce(RequestHead(0, 11, 1, "", 0), memoryview(content))
    for _ in range((topics - 1) * (batches // ITEMS_PER_STEP)):
        next(steps)
    with pytest.raises(Malformed, match="more than 10000 batches"):
        next(steps)
