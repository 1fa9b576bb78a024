"""The rules of the log cleaner, one by one, in C and in Python."""

from collections.abc import Sequence

import pytest
from requirements import Requirement, needs

from cordwood.storage.aborted_index import AbortedRow
from cordwood.storage.batch import DELETE_HORIZON, TRANSACTIONAL, check, headers, split
from cordwood.storage.compaction.filter import BatchFilter
from cordwood.storage.compaction.offset_map import IS_NATIVE, SEED_BYTES, OffsetMap, OffsetMapBuilder
from cordwood.storage.control import EndTransactionMarker, encode_marker
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import ProducerIdAndEpoch

NOW_MS, RETENTION_MS = 1_700_000_000_000, 1000
PRODUCER = 3


class Cleaner:
    """Rounds over a log of a few batches."""

    def __init__(self, is_native: bool) -> None:
        self.is_native, self.log, self.log_end, self.clean_end = is_native, list[bytes](), 0, 0
        self.rows: list[AbortedRow] = []

    def produce(
        self, *records: tuple[bytes | None, bytes | None], producer: int = -1, times: Sequence[int] = ()
    ) -> int:
        """Append a batch, of a transaction if it has a producer. Return its base offset."""
        base = self.log_end
        of_records = [
            Record(0, NOW_MS + time, key, value)
            for (key, value), time in zip(records, times or [0] * len(records), strict=True)
        ]
        attributes = TRANSACTIONAL if producer >= 0 else 0
        self.log.append(
            encode(of_records, base_offset=base, producer_id=producer, producer_epoch=0, attributes=attributes)
        )
        self.log_end += len(records)
        return base

    def end(self, first_offset: int, *, is_commit: bool) -> int:
        """Append a marker of PRODUCER. Return its offset."""
        offset, marker = self.log_end, EndTransactionMarker(is_commit, 1)
        batch = encode_marker(ProducerIdAndEpoch(PRODUCER, 0), marker, NOW_MS)
        self.log.append(offset.to_bytes(8, "big") + batch[8:])
        if not is_commit:
            self.rows.append(AbortedRow(PRODUCER, first_offset, offset, offset + 1))
        self.log_end += 1
        return offset

    def clean(self, after_ms: int = 0, *, bytes_max: int = 1 << 16) -> list[int]:
        """Run a round, one batch a call. Return the offsets of the records that are left."""
        offsets = OffsetMap(bytes_max, self.clean_end, self.log_end, bytes(SEED_BYTES), is_native=self.is_native)
        builder = OffsetMapBuilder(offsets)
        builder.expect(self.rows)
        for batch in self.log:
            if not builder.add(batch):
                break
        batch_filter = BatchFilter(
            offsets, end=offsets.end, now_ms=NOW_MS + after_ms, delete_retention_ms=RETENTION_MS, needed=()
        )
        batch_filter.expect(self.rows)
        self.log = [left for batch in self.log for left in split(batch_filter.filter(batch))]
        self.rows, self.clean_end = batch_filter.take_aborted(), offsets.end
        return [record.offset for batch in self.log for record in decode(batch)]


@pytest.fixture(
    params=[
        pytest.param(False, id="python"),
        pytest.param(
            True, id="native", marks=needs(Requirement.CC, IS_NATIVE, "record_filter.c has not been compiled")
        ),
    ]
)
def cleaner(request: pytest.FixtureRequest) -> Cleaner:
    return Cleaner(request.param)


def test_the_last_record_of_a_key_stays_and_one_without_a_key_goes(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"x"))
    cleaner.produce((b"b", b"2"), (b"c", b"1"))
    assert cleaner.clean() == [2, 4, 5]
    cleaner.produce((b"c", b"2"))
    assert cleaner.clean() == [2, 4, 6]


def test_a_full_map_leaves_the_rest_to_the_next_round(cleaner: Cleaner) -> None:
    keys = [b"%d" % number for number in range(60)]
    cleaner.produce(*((key, b"1") for key in keys))
    cleaner.produce((None, b"x"), *((key, b"2") for key in keys))
    rest, rounds = cleaner.clean(bytes_max=640), 1
    assert 60 in rest
    assert 0 < cleaner.clean_end < 60
    while cleaner.clean_end < cleaner.log_end:
        left, rounds = cleaner.clean(bytes_max=640), rounds + 1
    assert left == list(range(61, 121))
    assert rounds > 2


def test_what_a_full_map_does_not_cover_stays(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"), (b"b", b"1"), (b"a", None), (None, b"x"), (b"b", None))
    assert cleaner.clean(bytes_max=1) == [0, 1, 2, 3, 4]
    assert cleaner.clean_end == 1
    assert not check(cleaner.log[0]).attributes & DELETE_HORIZON


def test_a_tombstone_stays_until_its_horizon(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"), (b"b", b"1"))
    cleaner.produce((b"a", None), (b"c", b"1"), times=[-70, 70])
    cleaner.produce((b"z", b"1"))
    assert cleaner.clean() == [1, 2, 3, 4]
    for after_ms in (1, RETENTION_MS - 1):
        before = cleaner.log[:]
        assert cleaner.clean(after_ms) == [1, 2, 3, 4]
        assert cleaner.log == before
    assert check(cleaner.log[1]).base_timestamp == NOW_MS + RETENTION_MS
    assert [record.timestamp - NOW_MS for record in decode(cleaner.log[1])] == [-70, 70]
    assert cleaner.clean(RETENTION_MS) == [1, 3, 4]


def test_the_largest_time_is_that_of_a_record(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), times=[9, 5, 1])
    cleaner.produce((b"a", b"2"))
    assert cleaner.clean() == [1, 2, 3]
    assert check(cleaner.log[0]).max_timestamp == NOW_MS + 5


def test_aborted_records_go_and_replace_nothing(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"))
    first = cleaner.produce((b"a", b"2"), (b"b", b"1"), producer=PRODUCER)
    marker = cleaner.end(first, is_commit=False)
    cleaner.produce((b"z", b"1"))
    assert cleaner.clean() == [0, marker, 4]


def test_an_earlier_transaction_of_the_producer_is_not_aborted(cleaner: Cleaner) -> None:
    first = cleaner.produce((b"a", b"1"), producer=PRODUCER)
    committed = cleaner.end(first, is_commit=True)
    second = cleaner.produce((b"a", b"2"), producer=PRODUCER)
    aborted = cleaner.end(second, is_commit=False)
    cleaner.produce((b"z", b"1"))
    assert cleaner.clean() == [0, committed, aborted, 4]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_stays_until_its_data_is_gone_and_then_until_its_horizon(cleaner: Cleaner, is_commit: bool) -> None:
    first = cleaner.produce((b"a", b"1"), producer=PRODUCER)
    marker = cleaner.end(first, is_commit=is_commit)
    cleaner.produce((b"a", b"2"))

    def has_horizon() -> bool:
        return any(
            header.is_control and header.attributes & DELETE_HORIZON for header in headers(b"".join(cleaner.log))
        )

    assert cleaner.clean() == [marker, 2]
    assert not has_horizon()
    assert len(cleaner.rows) == (0 if is_commit else 1)
    assert cleaner.clean(5000) == [marker, 2]
    assert has_horizon()
    assert cleaner.rows == []
    assert cleaner.clean(5000 + RETENTION_MS - 1) == [marker, 2]
    assert cleaner.clean(5000 + RETENTION_MS) == [2]


def test_the_last_batch_of_the_round_stays_without_records(cleaner: Cleaner) -> None:
    cleaner.produce((b"a", b"1"))
    cleaner.produce((None, b"x"))
    assert cleaner.clean() == [0]
    assert [header.record_count for header in headers(b"".join(cleaner.log))] == [1, 0]
    cleaner.produce((b"z", b"1"))
    assert cleaner.clean() == [0, 2]
    assert len(cleaner.log) == 2
