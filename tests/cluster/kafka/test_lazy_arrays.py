"""Long arrays of requests: checked when the request is decoded, and decoded again by each iteration."""

import dataclasses
import tracemalloc
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader
from large_requests import LargeRequest, large_requests

from cordwood.cluster.kafka.codec import decoding, is_flexible, read_head
from cordwood.cluster.kafka.handlers import fetch, list_offsets, metadata, produce
from cordwood.cluster.kafka.message_reader import LAZY_FROM, LazyItems
from cordwood.cluster.kafka.wire import Malformed
from cordwood.storage.steps import at_once

ITEMS = LAZY_FROM + 1
MANY = 50_000
BYTES_PER_ITEM_MAX = 10
"""A decoded item takes 100 bytes and more."""
DECODED_IN_STEPS = [
    request
    for request in large_requests(ITEMS)
    if request.api not in (produce, fetch)
    and request.version == request.api.KEY.versions[-1]
    and not (request.is_same or request.is_empty)
]
"""Requests of other APIs than those that are decoded by hand."""


def decoded(frame: bytes) -> Any:
    view = memoryview(frame)
    head = read_head(view, is_flexible)
    return at_once(decoding(head.api_key, head.version, view, head.body))


def plain(value: Any) -> Any:
    """Return a message with all its lazy arrays as tuples."""
    if isinstance(value, tuple | LazyItems):
        return tuple(map(plain, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return dataclasses.replace(
        value, **{field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    )


@pytest.mark.parametrize("request_", DECODED_IN_STEPS, ids=str)
def test_a_long_array_has_the_items_that_kio_reads(request_: LargeRequest) -> None:
    frame = request_.frame()
    head = read_head(memoryview(frame), is_flexible)
    message = decoded(frame)
    expected, _ = entity_reader(load_request_schema(head.api_key, head.version))(memoryview(frame), head.body)
    assert plain(message) == expected
    assert plain(message) == expected, "the second iteration differs"


@pytest.mark.parametrize(("api", "array"), [(metadata, "/topics"), (list_offsets, "/topics/partitions")])
def test_the_items_of_a_long_array_are_never_whole_in_memory(api: Any, array: str) -> None:
    frame = LargeRequest(api, api.KEY.versions[-1], array, MANY, is_same=False).frame()
    decoded(frame)
    tracemalloc.start()
    try:
        message = decoded(frame)
        assert sum(1 for topic in message.topics for _ in getattr(topic, "partitions", (topic,))) == MANY
        assert tracemalloc.get_traced_memory()[1] < MANY * BYTES_PER_ITEM_MAX
    finally:
        tracemalloc.stop()


def test_an_item_that_cannot_be_decoded_is_refused_before_any_is_used() -> None:
    frame = LargeRequest(metadata, metadata.KEY.versions[-1], "/topics", ITEMS).frame()
    with pytest.raises(Malformed):
        decoded(frame[:-5])
