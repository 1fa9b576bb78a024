"""Record-level validation of a produced batch: record count, lengths and offset deltas, checked without decoding.

The rules are Kafka's (`LogValidator`, `DefaultRecord`): as many records as the header says and nothing after them,
offset deltas 0, 1, 2, …, and every key, value and header within its record. `record_walk.c` walks from record to
record. Where it could not be compiled, Python does the same more slowly (ADR 27 has the figures). A run of records of
the same shape is compared column by column, one column being the octet at one place of every record. Other records are
walked one by one.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from cordwood.storage.budget import RECORDS_PER_STEP, Budget, OverBudget
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import InvalidRecord
from cordwood.storage.steps import Steps, at_once

try:
    from cordwood.storage import record_walk

    IS_NATIVE = True
except ImportError:
    IS_NATIVE = False

NATIVE_STEPS_PER_COST = 32
"""In C this many records or headers take as long as one record in Python, or less."""
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, key, value and header count: a byte each."""

RUN_MIN = 32
"""Records. Columns of fewer octets cost more than a walk."""
WINDOW_RECORDS, WINDOW_GROWTH = 256, 16
"""The first window of a run, and its growth: comparing far past the end of a run would make long batches quadratic."""
COPIED_RECORD_BYTES_MAX = 400
"""Content with runs of smaller records is copied once: a column of `bytes` is read ten times as fast as one of a
`memoryview`. Of larger records a copy would mostly copy values."""
WALKED_AFTER_NO_RUN = 256
COLUMNS_MAX = 64
NEVER_PAUSED = -1
RUN_COST = 16
"""Looking for a run costs as much as walking this many records."""
RUN_RECORDS_PER_COST = 32
"""This many records of a run cost as much as one that is walked."""
NUMBER_BITS_MAX, TIMESTAMP_OCTETS_MAX = 35, 10

_IS_HIGH = bytes(128) + b"\x01" * 128


class Shape(NamedTuple):
    """The places of a record's length and delta octets, counted from the record's first byte."""

    size: int
    timestamp: range
    delta: range
    lengths: list[tuple[int, bytes]]
    """Places of lengths, each with its octet."""


class Paused(NamedTuple):
    """A record within which a walk has paused: its headers, which are paid for, are still to be checked."""

    delta: int
    record_end: int
    headers: int


Examination = Callable[[Bytes, int, int, Budget], bool]
"""Check that content up to an end is so many records. Return whether each has a key.

Raises InvalidRecord; OverBudget where more records and headers have to be walked than the budget has.
"""
ExaminationInSteps = Callable[[Bytes, int, int, Budget], Steps[bool]]


def examine_natively(content: Bytes, end: int, count: int, budget: Budget) -> bool:
    """Examine records in C (`Examination`). For callers that know that `IS_NATIVE`."""
    _check_count(end, count)
    budget.spend_records(1 + count // NATIVE_STEPS_PER_COST)
    try:
        found = record_walk.examine(content, end, count, budget.records * NATIVE_STEPS_PER_COST)
    except ValueError as error:
        raise InvalidRecord(str(error)) from error
    if found is None:
        raise OverBudget("more headers to look at than are allowed: send smaller batches")
    have_keys, headers = found
    budget.records -= headers // NATIVE_STEPS_PER_COST
    return have_keys


def examine_in_python(content: Bytes, end: int, count: int, budget: Budget) -> bool:
    """Examine records in Python (`Examination`)."""
    if count >= RUN_MIN or count > budget.records:
        return at_once(examine_in_python_in_steps(content, end, count, budget))
    # Most batches of clients that do not wait are so small: each call counts.
    _check_count(end, count)
    budget.records -= count
    try:
        place, have_keys, paused = _walk(_indexed(content), end, 0, range(count), budget, NEVER_PAUSED)
    except IndexError as error:
        raise _past_end(count) from error
    assert paused is None, "a walk of a single step"
    if place != end:
        raise _bytes_left(end - place, count)
    return have_keys


def examine_natively_in_steps(content: Bytes, end: int, count: int, budget: Budget) -> Steps[bool]:
    """Examine records in C, in a single step: a batch of the most records takes some 12 ms."""
    yield from ()
    return examine_natively(content, end, count, budget)


def examine_in_python_in_steps(content: Bytes, end: int, count: int, budget: Budget) -> Steps[bool]:
    """Examine records in Python, in steps of RECORDS_PER_STEP records and headers."""
    _check_count(end, count)
    try:
        place, have_keys = yield from _examine_many(content, end, count, budget)
    except IndexError as error:
        raise _past_end(count) from error
    if place != end:
        raise _bytes_left(end - place, count)
    return have_keys


examine: Examination = examine_natively if IS_NATIVE else examine_in_python
examine_in_steps: ExaminationInSteps = examine_natively_in_steps if IS_NATIVE else examine_in_python_in_steps


def _check_count(end: int, count: int) -> None:
    if count > end // RECORD_BYTES_MIN:
        raise InvalidRecord(f"{count} records in {end} bytes")


def _past_end(count: int) -> InvalidRecord:
    return InvalidRecord(f"one of {count} records extends past the end of the batch")


def _bytes_left(left: int, count: int) -> InvalidRecord:
    return InvalidRecord(f"{left} bytes after the last of {count} records")


def _indexed(content: Bytes) -> Bytes:
    """Return the content in the form of which single octets are read fastest."""
    return bytes(content) if content.__class__ is memoryview else content


def _examine_many(content: Bytes, end: int, count: int, budget: Budget) -> Steps[tuple[int, bool]]:
    """Return the place after the last record, and whether each has a key. Raises as `examine`, and IndexError."""
    done = place = 0
    have_keys = True
    step_ends_at = budget.records - RECORDS_PER_STEP
    while done < count:
        budget.spend_records(RUN_COST)
        begin = place
        place, has_key = yield from _walk_in_steps(content, end, begin, range(done, done + 1), budget)
        if place - begin <= COPIED_RECORD_BYTES_MAX:
            content = _indexed(content)
        run = _run(content, end, begin, place, done + 1, count)
        budget.spend_records(run // RUN_RECORDS_PER_COST)
        have_keys, done, place = have_keys and has_key, done + 1 + run, place + run * (place - begin)
        if run < RUN_MIN and done < count:
            content = _indexed(content)
            until = min(done + WALKED_AFTER_NO_RUN, count)
            budget.spend_records(until - done)
            place, has_key = yield from _walk_in_steps(content, end, place, range(done, until), budget)
            have_keys, done = have_keys and has_key, until
        if budget.records < step_ends_at:
            yield
            step_ends_at = budget.records - RECORDS_PER_STEP
    return place, have_keys


def _run(content: Bytes, end: int, begin: int, place: int, first: int, count: int) -> int:
    """Return how many records from `place` on, the first of them with delta `first`, have the shape of the one before.

    That one is between `begin` and `place`, and has been verified.
    """
    shape = _shape(content, begin, place)
    # The offset delta takes more octets from 64 on, and from 8,192: then the record's length is another one, too.
    width_changes = 1 << (7 * len(shape.delta) - 1)
    fitting = min(count, width_changes, first + (end - place) // shape.size) - first
    if len(shape.lengths) > COLUMNS_MAX:
        return 0
    run, window = 0, WINDOW_RECORDS
    while run < fitting:
        wanted = min(window, fitting - run)
        alike = _alike(content, place + run * shape.size, shape, first + run, wanted)
        run += alike
        if alike < wanted:
            break
        window *= WINDOW_GROWTH
    return run


def _alike(content: Bytes, place: int, shape: Shape, first: int, count: int) -> int:
    """Return how many of `count` records from `place` on, without a gap, have this shape and the deltas due."""
    size = shape.size
    end = place + count * size
    for at, octet in shape.lengths:
        column, due = content[place + at : end : size], octet * count
        if column != due:
            count = _same(column, due)
            end = place + count * size
    for nth, at in enumerate(shape.delta):
        count = _same(content[place + at : end : size], _deltas(first, count, nth, len(shape.delta)))
        end = place + count * size
    for at in shape.timestamp:
        times, is_high = bytes(content[place + at : end : size]), at < shape.timestamp[-1]
        if is_high or not times.isascii():
            count = _same(times.translate(_IS_HIGH), (b"\x01" if is_high else b"\x00") * count)
            end = place + count * size
    return count


def _same(column: Bytes, due: bytes) -> int:
    """Return how many octets are the same, from the first on."""
    if column == due:
        return len(column)
    same, different = 0, len(column)
    while different - same > 1:
        middle = (same + different) // 2
        if column[same:middle] == due[same:middle]:
            same = middle
        else:
            different = middle
    return same


def _deltas(first: int, count: int, nth: int, width: int) -> bytes:
    """Return the `nth` of `width` octets of each of `count` offset deltas from `first` on."""
    period = _period(nth, nth == width - 1)
    start = first % len(period)
    stop = start + count
    return period[start:stop] if stop <= len(period) else (period * (stop // len(period) + 1))[start:stop]


@functools.cache
def _period(nth: int, is_last: bool) -> bytes:
    """Return one period of the `nth` octet of 0, 1, 2, …: seven bits of twice the number."""
    more = 0 if is_last else 0x80
    if nth == 0:
        return bytes(octet | more for octet in range(0, 128, 2))
    return b"".join(bytes([octet | more]) * (64 << (7 * (nth - 1))) for octet in range(128))


def _shape(content: Bytes, begin: int, record_end: int) -> Shape:
    """Return the shape of the record from `begin` to `record_end`, which has been found to be sound."""
    length_end = _number(content, begin)[1]
    delta = _number(content, length_end + 1)[1]
    delta_end = _number(content, delta)[1]
    lengths = list(range(length_end - begin))
    place = delta_end
    for _ in range(2):
        place = _field(content, begin, place, lengths)
    headers, field = _number(content, place)
    lengths += range(place - begin, field - begin)
    for _ in range(min(headers, COLUMNS_MAX)):
        field = _field(content, begin, field, lengths)
    timestamp = range(length_end + 1 - begin, delta - begin)
    octets = [(at, bytes(content[begin + at : begin + at + 1])) for at in lengths]
    return Shape(record_end - begin, timestamp, range(delta - begin, delta_end - begin), octets)


def _field(content: Bytes, begin: int, place: int, lengths: list[int]) -> int:
    """Return the place after a key, a value or a part of a header. Add the places of its length to `lengths`."""
    length, content_place = _number(content, place)
    lengths += range(place - begin, content_place - begin)
    return content_place if length & 1 else content_place + (length >> 1)


def _walk_in_steps(content: Bytes, end: int, place: int, deltas: range, budget: Budget) -> Steps[tuple[int, bool]]:
    """Check records one by one, as `_walk`, in steps of RECORDS_PER_STEP headers. Records without headers are free."""
    have_keys, done = True, deltas.start
    while True:
        pause_at = budget.records - RECORDS_PER_STEP
        place, has_key, paused = _walk(content, end, place, range(done, deltas.stop), budget, pause_at)
        have_keys = have_keys and has_key
        if paused is None:
            return place, have_keys
        for checked in range(0, paused.headers, RECORDS_PER_STEP):
            yield
            place = _headers_end(content, place, min(RECORDS_PER_STEP, paused.headers - checked))
        if place != paused.record_end:
            raise _wrong_length(paused.delta)
        done = paused.delta + 1


def _walk(  # noqa: C901
    content: Bytes, end: int, place: int, deltas: range, budget: Budget, pause_at: int
) -> tuple[int, bool, Paused | None]:
    """Check records one by one. Return the place after them, and whether each has a key.

    Pauses before headers that leave less than `pause_at` of the budget. Raises InvalidRecord, IndexError, OverBudget.
    """
    # A number is zigzag: twice itself, and odd where it is negative. Reading it is written out, and not a call, for
    # those of up to two octets: that halves the time.
    have_keys = True
    for delta in deltas:
        length = content[place]
        place += 1
        if length > 0x7F:
            length += (content[place] << 7) - 0x80
            place += 1
            if length > 0x3FFF:
                length, place = _number(content, place - 2)
        record_end = place + (length >> 1)
        if length & 1 or record_end > end:
            raise InvalidRecord(f"record {delta} extends past the end of the batch")
        timestamp = place = place + 1
        while content[place] > 0x7F:
            place += 1
        if place - timestamp >= TIMESTAMP_OCTETS_MAX:
            raise InvalidRecord(f"record {delta} has a timestamp of more than 64 bits")
        number = content[place + 1]
        place += 2
        if number > 0x7F:
            number += (content[place] << 7) - 0x80
            place += 1
            if number > 0x3FFF:
                number, place = _number(content, place - 2)
        if number != delta << 1:
            raise InvalidRecord(f"record {delta} has another offset delta")
        key = content[place]
        place += 1
        if key > 0x7F:
            key, place = _number(content, place - 1)
        if key & 1:
            have_keys = False
        else:
            place += key >> 1
        value = content[place]
        place += 1
        if value > 0x7F:
            value += (content[place] << 7) - 0x80
            place += 1
            if value > 0x3FFF:
                value, place = _number(content, place - 2)
        if not value & 1:
            place += value >> 1
        if content[place]:
            headers, place = _header_count(content, place, record_end, budget)
            if budget.records < pause_at:
                return place, have_keys, Paused(delta, record_end, headers)
            place = _headers_end(content, place, headers)
        else:
            place += 1
        if place != record_end:
            raise _wrong_length(delta)
    return place, have_keys, None


def _wrong_length(delta: int) -> InvalidRecord:
    return InvalidRecord(f"record {delta} has a wrong length")


def _header_count(content: Bytes, place: int, record_end: int, budget: Budget) -> tuple[int, int]:
    """Return the number of headers, which it pays for, and the place of the first."""
    count, place = _number(content, place)
    octets = max(record_end - place, 0)
    if count & 1 or count > octets:
        raise InvalidRecord(f"{count >> 1} headers in {octets} bytes")
    budget.spend_records(count >> 1)
    return count >> 1, place


def _headers_end(content: Bytes, place: int, count: int) -> int:
    """Check so many headers. Return the place after them."""
    for _ in range(count):
        name, place = _number(content, place)
        if name & 1:
            raise InvalidRecord("a header without a name")
        value, place = _number(content, place + (name >> 1))
        if not value & 1:
            place += value >> 1
    return place


def _number(content: Bytes, place: int) -> tuple[int, int]:
    """Return a number as it is written, zigzag, and the place after it. Raises InvalidRecord, IndexError."""
    number = shift = 0
    while True:
        octet = content[place]
        place += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number, place
        shift += 7
        if shift >= NUMBER_BITS_MAX:
            raise InvalidRecord("a length of more than 32 bits")
