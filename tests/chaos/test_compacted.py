"""Contents of compacted logs: which differences between replicas, and between before and after, are none."""

from cordwood.chaos.compacted import CompactedContents, differences, losses
from cordwood.cluster.coordination.topic import encode_in_transaction
from cordwood.storage.batch import peek, stamp
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch

END = 100
PRODUCER = ProducerIdAndEpoch(7, 0)


def at(offset: int, batch: bytes) -> bytes:
    return stamp(peek(batch), offset, 0) + batch[16:]


def put(offset: int, key: str, value: str | None) -> bytes:
    return at(offset, encode([_record(key, value)]))


def put_in_transaction(offset: int, key: str, value: str) -> bytes:
    return at(offset, encode_in_transaction([_record(key, value)], PRODUCER))


def end_transaction(offset: int, *, is_commit: bool) -> bytes:
    return at(offset, encode_marker(PRODUCER, EndTransactionMarker(is_commit, 0), 0))


def _record(key: str, value: str | None) -> Record:
    return Record(0, 0, key.encode(), None if value is None else value.encode())


WHOLE = [put(0, "a", "1"), put(1, "b", "2"), put(2, "a", "3"), put(3, "b", None)]


def lost(*left: bytes, written: list[bytes] = WHOLE, start: int = 0) -> list[str]:
    return list(losses(CompactedContents(written), CompactedContents(left), start, END))


def differing(one: list[bytes], other: list[bytes], start: int = 0) -> list[str]:
    return list(differences(CompactedContents(one), CompactedContents(other), start, END))


def test_nothing_is_lost_with_what_was_replaced_or_deleted() -> None:
    assert lost(*WHOLE) == []
    assert lost(put(2, "a", "3"), put(3, "b", None)) == []
    assert lost(put(2, "a", "3")) == []


def test_a_lost_value_is_found() -> None:
    assert lost(put(3, "b", None)) == ["key b'a' has None, and offset 2 gave it b'3'"]
    assert lost(put(0, "a", "1")) == ["key b'a' has b'1', and offset 2 gave it b'3'"]
    assert lost(put(3, "b", None), start=3) == [], "retention has deleted it"


def test_a_deleted_value_that_comes_back_is_found() -> None:
    assert lost(put(1, "b", "2"), put(2, "a", "3")) == ["key b'b' has b'2', and offset 3 gave it None"]


def test_another_record_at_an_offset_is_found() -> None:
    found = lost(put(2, "a", "4"), put(3, "b", None))
    assert len(found) == 2
    assert found[0].startswith("offset 2 has")


def test_replicas_may_differ_in_what_is_gone_and_in_nothing_else() -> None:
    assert differing(WHOLE, [put(2, "a", "3")]) == []
    assert differing(WHOLE, [put(3, "b", None)]) == ["key b'a' has b'3' and None"]
    assert differing(WHOLE, [put(3, "b", None)], start=3) == [], "one of them has deleted more of its beginning"
    assert differing([put(2, "a", "3")], [put(2, "a", "4")]) != []


def test_an_aborted_value_replaces_none() -> None:
    aborted = [put(0, "a", "1"), put_in_transaction(1, "a", "2"), end_transaction(2, is_commit=False)]
    assert lost(put(0, "a", "1"), written=aborted) == []
    assert differing(aborted, [put(0, "a", "1")]) == []


def test_a_committed_value_counts_at_its_own_offset() -> None:
    written = [put_in_transaction(0, "a", "1"), put(1, "a", "2"), end_transaction(2, is_commit=True)]
    assert CompactedContents(written).value_of(b"a") == b"2"
    assert lost(put(1, "a", "2"), written=written) == []
