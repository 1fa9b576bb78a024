"""The Produce response: the fast path for a single acknowledged batch gives the same bytes as the general encoder."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.produce_response import ProduceOutcome, encode, encode_lone
from cordwood.storage.steps import at_once


def outcome(index: int, message: str | None = None) -> ProduceOutcome:
    """The outcome of a batch at offset 7, without a request to complete."""
    made = ProduceOutcome(cast(Any, SimpleNamespace()), index)
    made.base_offset, made.append_time, made.log_start, made.message = 7, 1_700_000_000_000, 3, message
    return made


def head(version: int) -> RequestHead:
    return RequestHead(0, version, 99, "client", 0)


@pytest.mark.parametrize("version", range(9, 13))
@pytest.mark.parametrize("name", ["t", "t" * 126, "t" * 127, "t" * 249])
def test_a_lone_response_has_the_bytes_of_the_general_encoder(version: int, name: str) -> None:
    topics = [(name, [outcome(5)])]
    assert encode_lone(head(version), topics) == at_once(encode(head(version), topics, {}))


@pytest.mark.parametrize("message", [None, "refused"])
def test_a_topic_with_an_id_is_named_by_its_id(message: str | None) -> None:
    topic_id = UUID(int=7)
    topics = [(topic_id, [outcome(5, message)])]
    whole = at_once(encode(head(13), topics, {}))
    assert encode_lone(head(13), topics) == (whole if message is None else None)
    schema = load_response_schema(0, 13)
    response, _ = entity_reader(schema)(whole, 9)
    (row,) = response.responses[0].partition_responses
    assert (response.responses[0].topic_id, row.index, row.base_offset) == (topic_id, 5, 7)
    assert row.error_message == message


@pytest.mark.parametrize(
    ("version", "topics"),
    [
        (8, [("t", [outcome(0)])]),
        (11, [("t", [outcome(0), outcome(1)])]),
        (11, [("t", [outcome(0)]), ("u", [outcome(0)])]),
        (11, [("t", [outcome(0, "refused")])]),
        (11, [("t", [])]),
        (11, []),
    ],
)
def test_other_responses_are_left_to_the_general_encoder(
    version: int, topics: list[tuple[str, list[ProduceOutcome]]]
) -> None:
    assert encode_lone(head(version), topics) is None
