"""Validation of the records of a produced batch: only batches that a consumer can decode, within a work budget."""

import math
import mmap
import re
from typing import Any

import cramjam
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from raw_batches import NOW_MS, body_of, bomb, raw_batch, zero_deltas
from requirements import Requirement, needs

from cordwood.storage.admission import admit, admit_records, admit_records_in_steps
from cordwood.storage.batch import Compression, check
from cordwood.storage.budget import RECORDS_MAX, RECORDS_PER_STEP, UNPACKED_BYTES_MAX, Budget, OverBudget
from cordwood.storage.config import LogConfig
from cordwood.storage.contents import (
    IS_NATIVE,
    Examination,
    examine,
    examine_in_python,
    examine_in_python_in_steps,
    examine_natively,
    examine_natively_in_steps,
)
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import BatchTooLarge, CorruptBatch, InvalidRecord
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.steps import at_once

PACKERS = {
    Compression.NONE: bytes,
    Compression.GZIP: cramjam.gzip.compress,
    Compression.SNAPPY: cramjam.snappy.compress_raw,
    Compression.LZ4: cramjam.lz4.compress,
    Compression.ZSTD: cramjam.zstd.compress,
}

a_field = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70)
headers = st.lists(st.tuples(st.text(max_size=3), a_field), max_size=2).map(tuple)
record = st.builds(Record, st.just(0), st.integers(NOW_MS, NOW_MS + 200), a_field, a_field, headers)
many_alike = st.tuples(record, st.integers(1, 150)).map(lambda alike: [alike[0]] * alike[1])
some_records = st.lists(st.lists(record, max_size=5) | many_alike, min_size=1, max_size=4).map(
    lambda lists: [record for some in lists for record in some] or [Record(0, NOW_MS, None, None)]
)
needs_native = needs(Requirement.CC, IS_NATIVE, "record_walk.c has not been compiled")
each_form = pytest.mark.parametrize(
    "form",
    [pytest.param(examine_in_python, id="python"), pytest.param(examine_natively, id="native", marks=needs_native)],
)


def admitted(
    batch: bytes, form: Examination = examine, *, compacted: bool = False, budget: Budget | None = None
) -> Budget:
    """Admit the batch, at once and in steps, and return the remaining budget. Raises as `admit_records` does."""
    budget = budget or Budget()
    header, config = check(batch), LogConfig(compacted=compacted, batch_bytes_max=1 << 30)
    admit(batch, header, config, NOW_MS)
    in_steps = examine_in_python_in_steps if form is examine_in_python else examine_natively_in_steps
    steps = admit_records_in_steps(batch, header, config, Budget(budget.records, budget.unpacked_bytes), in_steps)
    try:
        admit_records(batch, header, config, budget, form)
    except (InvalidRecord, OverBudget) as refused:
        with pytest.raises(type(refused), match=re.escape(str(refused))):
            at_once(steps)
        raise
    at_once(steps)
    return budget


@each_form
@given(some_records, st.sampled_from(Compression))
def test_whatever_a_client_encodes_is_let_in(
    form: Examination, records: list[Record], compression: Compression
) -> None:
    admitted(encode(records, compression=compression), form)


@each_form
@given(some_records, st.sampled_from(Compression))
def test_a_compacted_topic_takes_records_with_keys(
    form: Examination, records: list[Record], compression: Compression
) -> None:
    batch = encode(records, compression=compression)
    if all(record.key is not None for record in records):
        admitted(batch, form, compacted=True)
    else:
        with pytest.raises(InvalidRecord, match="must have a key"):
            admitted(batch, form, compacted=True)


@each_form
@given(some_records, st.integers(0, 255), st.floats(0, 1, exclude_max=True))
def test_what_is_let_in_is_what_a_reader_can_read(
    form: Examination, records: list[Record], octet: int, where: float
) -> None:
    body = bytearray(body_of(records))
    body[math.floor(where * len(body))] = octet
    batch = raw_batch(bytes(body), len(records))
    assert is_admitted(batch, form) == is_readable(batch)


def is_admitted(batch: bytes, form: Examination) -> bool:
    try:
        admitted(batch, form)
    except InvalidRecord:
        return False
    return True


def is_readable(batch: bytes) -> bool:
    """Return whether a reader decodes exactly the records that the header announces, one for each offset."""
    try:
        return [record.offset for record in decode(batch)] == list(range(check(batch).record_count))
    except CorruptBatch as corrupt:
        # Admission does not check that a record header's key is UTF-8, as in Kafka.
        assume("utf-8" not in str(corrupt))
        return False


@each_form
@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("count", [1, 2, 49, 51, 200, 100_000])
def test_another_number_of_records_than_the_header_says_is_refused(
    form: Examination, count: int, compression: Compression
) -> None:
    body = body_of([Record(0, NOW_MS, b"key", b"value" * 20)] * 50)
    with pytest.raises(InvalidRecord):
        admitted(raw_batch(bytes(PACKERS[compression](body)), count, compression), form)


@each_form
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("count", [2, 40, 500_000])
def test_records_with_the_same_offset_are_refused(form: Examination, count: int, compression: Compression) -> None:
    with pytest.raises(InvalidRecord, match="offset delta"):
        admitted(zero_deltas(count, compression), form)


def test_a_claim_of_three_million_records_is_refused() -> None:
    with pytest.raises(BatchTooLarge):
        admitted(raw_batch(body_of([Record(0, NOW_MS, None, b"v")]), 3_000_000))


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD])
def test_records_that_do_not_unpack_are_refused_for_good(compression: Compression) -> None:
    # Not CORRUPT_MESSAGE: clients retry that error, and a retry cannot help here.
    with pytest.raises(InvalidRecord):
        admitted(raw_batch(b"\xff" * 100, 1, compression))


@each_form
def test_many_records_of_the_same_lengths_cost_next_to_nothing(form: Examination) -> None:
    batch = encode([Record(0, NOW_MS, b"%06d" % number, b"v" * 90) for number in range(100_000)])
    assert RECORDS_MAX - admitted(batch, form).records < 4_000


def test_records_of_any_length_cost_python_one_each() -> None:
    batch = encode([Record(0, NOW_MS, None, b"v" * (number * 7919 % 90)) for number in range(10_000)])
    assert 10_000 <= RECORDS_MAX - admitted(batch, examine_in_python).records < 11_000


@needs_native
def test_records_of_any_length_cost_next_to_nothing_in_c() -> None:
    batch = encode([Record(0, NOW_MS, None, b"v" * (number * 7919 % 90)) for number in range(10_000)])
    assert RECORDS_MAX - admitted(batch, examine_natively).records < 400


@each_form
@pytest.mark.parametrize("count", [1, 40])
def test_headers_are_paid_for(form: Examination, count: int) -> None:
    batch = encode([Record(0, NOW_MS, None, b"v", (("", None),) * (160_000 // count))] * count)
    with pytest.raises(OverBudget):
        admitted(batch, form, budget=Budget(records=4_000))
    assert RECORDS_MAX - admitted(batch, form).records > 4_000


def test_each_part_in_python_is_small() -> None:
    records = [Record(0, NOW_MS, b"k", b"v" * (number * 7919 % 90)) for number in range(20_000)]
    content, budget = body_of(records), Budget()
    costs, before = [], budget.records
    for _ in examine_in_python_in_steps(content, len(content), len(records), budget):
        costs.append(before - budget.records)
        before = budget.records
    assert len(costs) == len(records) // RECORDS_PER_STEP
    assert max(costs) < 1.2 * RECORDS_PER_STEP


class Counted(bytes):
    """Bytes that count how many of them are read."""

    looked_at = 0

    def __getitem__(self, where: Any) -> Any:
        found = super().__getitem__(where)
        type(self).looked_at += len(found) if isinstance(where, slice) else 1
        return found


@pytest.mark.parametrize(("count", "headers"), [(1, 1_000_000), (40, 25_000), (1_000, 1_000), (60_000, 1)])
def test_a_part_in_python_is_small_however_the_headers_are_spread(count: int, headers: int) -> None:
    records = [Record(0, NOW_MS, b"k", b"v" * (number * 7919 % 90), (("", None),) * headers) for number in range(count)]
    content, budget = Counted(body_of(records)), Budget(2 * RECORDS_MAX)
    steps, costs = examine_in_python_in_steps(content, len(content), count, budget), []
    Counted.looked_at = 0
    for _ in steps:
        costs.append(Counted.looked_at)
        Counted.looked_at = 0
    assert max(*costs, Counted.looked_at) < 30 * RECORDS_PER_STEP


@pytest.mark.parametrize("alike", [1, 2, 31, 33, 100, 257, 300, 5000])
def test_the_work_grows_with_the_records_and_no_faster(alike: int) -> None:
    records = [Record(0, NOW_MS, b"k", b"v" * (1 + number // alike % 2)) for number in range(20_000)]
    Counted.looked_at = 0
    content = Counted(body_of(records))
    assert examine_in_python(content, len(content), len(records), Budget())
    assert Counted.looked_at < 40 * len(records)


@each_form
def test_what_exceeds_the_budget_is_known_before_it_is_done(form: Examination) -> None:
    budget = Budget(records=100, unpacked_bytes=100_000)
    with pytest.raises(OverBudget):
        admitted(bomb(), form, budget=budget)
    assert budget.records == 100
    with pytest.raises(OverBudget):
        admitted(encode([Record(0, NOW_MS, None, b"v" * (number % 50)) for number in range(5000)]), form, budget=budget)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_unpacks_to_too_much_is_refused(compression: Compression) -> None:
    packed = bytes(PACKERS[compression](bytes(UNPACKED_BYTES_MAX + 1)))
    with pytest.raises(OverBudget, match="64 MiB"):
        admitted(raw_batch(packed, 1, compression))


def finding(form: Examination, content: Bytes, end: int, count: int) -> bool | str:
    """Whether all have keys, or the sentence of the refusal."""
    try:
        return form(content, end, count, Budget())
    except InvalidRecord as refused:
        return str(refused)


a_share = st.floats(0, 1)
an_octet = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)


@needs_native
@given(some_records, st.lists(st.tuples(a_share, an_octet), max_size=3), a_share | st.just(1.0), st.integers(-1, 1))
def test_both_forms_find_the_same(
    records: list[Record], changes: list[tuple[float, int]], share: float, more: int
) -> None:
    content = bytearray(body_of(records))
    for where, octet in changes:
        content[round(where * (len(content) - 1))] = octet
    end, count = round(share * len(content)), len(records) + more
    found = finding(examine_in_python, bytes(content), end, count)
    for buffer in (bytes(content), content, memoryview(content), memoryview(b"\0" + content).toreadonly()[1:]):
        assert finding(examine_natively, buffer, end, count) == found


@needs_native
@given(st.lists(an_octet, max_size=60).map(bytes), st.integers(0, 9), st.integers(0, 10))
def test_both_forms_find_the_same_of_noise(content: bytes, count: int, cut_bytes: int) -> None:
    end = max(len(content) - cut_bytes, 0)
    assert finding(examine_natively, content, end, count) == finding(examine_in_python, content, end, count)


@needs_native
@pytest.mark.parametrize("end", [600_000, 3_000_000])
def test_a_mapped_file_is_walked_where_it_is(end: int) -> None:
    content = body_of([Record(0, NOW_MS, b"k", b"v" * (number % 50)) for number in range(100_000)])
    with mmap.mmap(-1, len(content)) as mapped:
        mapped[:] = content
        found = finding(examine_natively, mapped, min(end, len(content)), 100_000)
    assert found == finding(examine_in_python, content, min(end, len(content)), 100_000)


@needs_native
def test_an_end_outside_the_buffer_is_a_bug_of_the_caller() -> None:
    with pytest.raises(IndexError):
        examine_natively(bytes(7), 8, 1, Budget())
