"""Replay of an internal topic: copies that coordinators of earlier versions have written never replace a value."""

import pytest

from cordwood.cluster.coordination.replay import COPY, Replay, without_copies
from cordwood.cluster.coordination.topic import encode_in_transaction
from cordwood.storage.batch import check, peek, split, stamp
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Header, Record, encode
from cordwood.storage.steps import at_once
from cordwood.storage.types import ProducerIdAndEpoch

KEY, PRODUCER = b"key", ProducerIdAndEpoch(7, 0)


def record(value: bytes | None, headers: tuple[Header, ...] = ()) -> Record:
    return Record(0, 0, KEY, value, headers)


def copy(value: bytes) -> bytes:
    return encode([record(value, COPY)])


def replayed(*batches: bytes) -> dict[bytes, bytes]:
    replay, end = Replay(), 0
    for batch in batches:
        header = peek(batch)
        end = at_once(replay.take(stamp(header, end, 0) + batch[16:], 0))
    return replay.newest


def test_a_copy_stands_for_the_value_that_was_deleted() -> None:
    assert replayed(copy(b"old")) == {KEY: b"old"}
    assert replayed(copy(b"old"), encode([record(b"new")])) == {KEY: b"new"}
    assert replayed(copy(b"old"), encode([record(None)])) == {}


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_copy_that_was_made_before_a_marker_does_not_take_the_value_back(is_commit: bool) -> None:
    change = encode_in_transaction([record(b"new")], PRODUCER)
    marker = encode_marker(PRODUCER, EndTransactionMarker(is_commit, 0), 0)
    found = replayed(encode([record(b"old")]), change, marker, copy(b"old"))
    assert found == {KEY: b"new" if is_commit else b"old"}


def test_copies_take_no_part_in_compaction_and_their_offsets_stay() -> None:
    plain, copies = encode([record(b"new")], base_offset=0), encode([record(b"old", COPY)] * 3, base_offset=1)
    marker = encode_marker(PRODUCER, EndTransactionMarker(True, 0), 0)
    assert without_copies(plain) is plain
    kept, emptied, after = split(without_copies(plain + copies + marker))
    assert (kept, after) == (plain, marker)
    assert (check(emptied).base_offset, check(emptied).end, check(emptied).record_count) == (1, 4, 0)
