"""Record streams as lines and as server-sent events, and the event ids."""

import json

import pytest

from cordwood.cluster.http.bodies import HEADER_BYTES_MAX
from cordwood.cluster.http.records.encodings import Encoding, ReadRecord, written
from cordwood.cluster.http.records.formats import Events, Lines, positions_in
from cordwood.cluster.http.refusal import Mistake
from cordwood.storage.records import Record
from cordwood.storage.types import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def record(
    offset: int, value: bytes = b"v", place: TopicPartition = FIRST, encoding: Encoding = Encoding.TEXT
) -> ReadRecord:
    return written(place.topic, place.partition, Record(offset, 5, None, value), encoding, encoding)


def ids(events: bytes) -> list[str]:
    return [line[4:] for line in events.decode().splitlines() if line.startswith("id: ")]


def test_an_events_id_is_where_to_go_on_in_every_partition() -> None:
    events = Events({FIRST: 7, SECOND: 3})
    assert ids(events.records(FIRST, [record(7), record(9)])) == ["0:8,3", "0:10,3"]
    assert ids(events.records(SECOND, [record(3, place=SECOND)])) == ["0:10,4"]
    assert ids(events.gap(SECOND, range(4, 20))) == ["0:10,20"]


def test_records_that_are_not_for_the_client_are_passed_all_the_same() -> None:
    events = Events({FIRST: 0})
    assert ids(events.passed(FIRST, 5)) == ["0:5"]
    assert events.passed(FIRST, 5) == b""
    assert Lines().passed(FIRST, 5) == b""


@pytest.mark.parametrize("event_id", ["0:1", "0:1,1:2,12:9223372036854775807"])
def test_an_id_is_read_as_it_was_written(event_id: str) -> None:
    known = positions_in(event_id)
    assert known is not None
    assert ",".join(f"{partition}:{offset}" for partition, offset in known.items()) == event_id


def test_a_partition_that_does_not_follow_on_is_named() -> None:
    starts = {TopicPartition("t", partition): 7 for partition in (1, 2, 5, 6, 9)}
    [event_id] = ids(Events(starts).passed(TopicPartition("t", 1), 8))
    assert event_id == "1:8,7,5:7,7,9:7"
    assert positions_in(event_id) == {1: 8, 2: 7, 5: 7, 6: 7, 9: 7}


@pytest.mark.parametrize("partitions", [range(1), range(400), range(0, 800, 2)])
def test_no_id_is_longer_than_was_said(partitions: range) -> None:
    last = (1 << 63) - 1
    events = Events({TopicPartition("t", partition): last for partition in partitions})
    [event_id] = ids(events.passed(TopicPartition("t", 0), last - 1))
    assert len(event_id) < events.id_chars_max
    assert positions_in(event_id) == {partition: last - (partition == 0) for partition in partitions}


def test_four_hundred_partitions_fit_a_header() -> None:
    assert Events({TopicPartition("t", partition): 0 for partition in range(400)}).id_chars_max <= HEADER_BYTES_MAX


@pytest.mark.parametrize("event_id", ["", "0", "0:", ":1", "0:1,", "a:1", "0:-1", "0:1;1:2", "٣:1", "0:" + "9" * 20])
def test_what_is_no_id_is_known_for_it(event_id: str) -> None:
    assert positions_in(event_id) is None


def test_a_mistake_ends_lines_and_is_an_event_of_its_own() -> None:
    mistake = Mistake("The topic is gone.", "UNKNOWN_TOPIC_OR_PARTITION")
    assert json.loads(Lines().mistake(mistake)) == {"error": mistake.error, "code": mistake.code}
    assert Events({FIRST: 0}).mistake(mistake).startswith(b"event: mistake\ndata: {")


@pytest.mark.parametrize(
    ("value", "encoding", "shown"),
    [
        (b"text", Encoding.TEXT, '"value":"text"'),
        (b"\xff", Encoding.TEXT, '"value_base64":"/w=="'),
        (b'{"a": 1}', Encoding.JSON, '"value":{"a": 1}'),
        (b"{", Encoding.JSON, '"value":"{"'),
        (b'{"a":\n1}', Encoding.JSON, '"value":"{\\"a\\":\\n1}"'),
        (b'"\xff"', Encoding.JSON, '"value_base64":"Iv8i"'),
        (b"[" * 100_000, Encoding.JSON, '"value":"[['),
        (b"text", Encoding.BASE64, '"value_base64":"dGV4dA=="'),
    ],
    ids=["text", "bytes", "json", "no json", "json of two lines", "no unicode in json", "deep", "base64"],
)
def test_a_value_never_breaks_the_line_that_it_is_in(value: bytes, encoding: Encoding, shown: str) -> None:
    line = Lines().records(FIRST, [record(0, value, encoding=encoding)])
    assert shown in line.decode()
    assert line.count(b"\n") == 1
    json.loads(line)
