"""The records in a client's batch, checked as bytes: count, lengths and offset deltas. No record is built.

Kafka's rules (`LogValidator`, `DefaultRecord`): as many records as the header says and nothing behind them, deltas
0, 1, 2, …, and every key, value and header within its record. Where many records in a row have the same lengths, as
most producers' have, they are compared column by column; others are walked one by one (ADR 27 has the figures).
"""

import functools
from typing import NamedTuple

from cordwood.storage.budget import Budget
from cordwood.storage.decompression import Content
from cordwood.storage.errors import InvalidRecord

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, key, value and header count: a byte each."""

RUN_MIN = 32
"""Fewer records are walked: columns of so few octets would take longer."""
WINDOW_RECORDS, WINDOW_GROWTH = 256, 16
"""How far ahead columns are looked at: never much further than the run goes, or long batches would take its square."""
WALKED_AFTER_NO_RUN = 256
COLUMNS_MAX = 64
RUN_COST = 16
"""To look for a run takes as long as to walk so many records."""
RUN_RECORDS_PER_COST = 32
"""So many records of a run take as long as one that is walked."""
NUMBER_BITS_MAX, TIMESTAMP_OCTETS_MAX = 35, 10

_IS_HIGH = bytes(128) + b"\x01" * 128


class Shape(NamedTuple):
    """Where the octets of a record are that are no content, counted from its beginning."""

    size: int
    timestamp: range
    delta: range
    lengths: list[int]


def examine(content: Content, end: int, count: int, budget: Budget) -> bool:
    """Check that `content` up to `end` is `count` records. Return whether each has a key.

    Raises InvalidRecord; OverBudget where more of them have to be walked than the budget has.
    """
    if count > end // RECORD_BYTES_MIN:
        raise InvalidRecord(f"{count} records in {end} bytes")
    try:
        if count < RUN_MIN and count <= budget.records:
            # Most batches of clients that do not wait are so small: each call counts.
            budget.records -= count
            place, have_keys = _walk(content, end, 0, range(count))
        else:
            place, have_keys = _examine_many(content, end, count, budget)
    except IndexError as error:
        raise InvalidRecord(f"one of {count} records reaches behind the batch") from error
    if place != end:
        raise InvalidRecord(f"{end - place} bytes behind the last of {count} records")
    return have_keys


def _examine_many(content: Content, end: int, count: int, budget: Budget) -> tuple[int, bool]:
    """Return the place behind the last record, and whether each has a key. Raises as `examine`, and IndexError."""
    done = place = 0
    have_keys = True
    while done < count:
        budget.spend_records(RUN_COST)
        begin = place
        place, has_key = _walk(content, end, begin, range(done, done + 1))
        run = _run(content, end, begin, place, done + 1, count)
        budget.spend_records(run // RUN_RECORDS_PER_COST)
        done, place = done + 1 + run, place + run * (place - begin)
        until = done if run >= RUN_MIN else min(done + WALKED_AFTER_NO_RUN, count)
        budget.spend_records(until - done)
        place, walked_have_keys = _walk(content, end, place, range(done, until))
        have_keys, done = have_keys and has_key and walked_have_keys, until
    return place, have_keys


def _run(content: Content, end: int, begin: int, place: int, first: int, count: int) -> int:
    """How many records from `place` on, the first of them with the delta `first`, are made as the one at `begin`."""
    shape = _shape(content, begin, place)
    # The offset delta takes more octets from 64 on, and from 8,192: then the record's length is another one, too.
    width_changes = 1 << (7 * len(shape.delta) - 1)
    fitting = min(count, width_changes, first + (end - place) // shape.size) - first
    if len(shape.lengths) > COLUMNS_MAX:
        return 0
    run, window = 0, WINDOW_RECORDS
    while run < fitting:
        wanted = min(window, fitting - run)
        alike = _alike(content, begin, place + run * shape.size, shape, first + run, wanted)
        run += alike
        if alike < wanted:
            break
        window *= WINDOW_GROWTH
    return run


def _alike(content: Content, begin: int, place: int, shape: Shape, first: int, count: int) -> int:
    """Of `count` records, as many as have their lengths as the one at `begin` has, and the deltas that are due."""
    size = shape.size
    behind = place + count * size
    for at in shape.lengths:
        column = content[place + at : behind : size]
        due = content[begin + at : begin + at + 1] * count
        if column != due:
            count = _same(column, due)
            behind = place + count * size
    for nth, at in enumerate(shape.delta):
        count = _same(content[place + at : behind : size], _deltas(first, count, nth, len(shape.delta)))
        behind = place + count * size
    for at in shape.timestamp:
        column, is_high = content[place + at : behind : size], at < shape.timestamp[-1]
        if is_high or not column.isascii():
            count = _same(column.translate(_IS_HIGH), (b"\x01" if is_high else b"\x00") * count)
            behind = place + count * size
    return count


def _same(column: Content, due: Content) -> int:
    """How many octets are the same from the beginning on."""
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
    """The `nth` of `width` octets of each of `count` offset deltas from `first` on."""
    period = _period(nth, nth == width - 1)
    start = first % len(period)
    behind = start + count
    return period[start:behind] if behind <= len(period) else (period * (behind // len(period) + 1))[start:behind]


@functools.cache
def _period(nth: int, is_last: bool) -> bytes:
    """What the `nth` octet of 0, 1, 2, … is until it comes again: seven bits of twice the number."""
    more = 0 if is_last else 0x80
    if nth == 0:
        return bytes(octet | more for octet in range(0, 128, 2))
    return b"".join(bytes([octet | more]) * (64 << (7 * (nth - 1))) for octet in range(128))


def _shape(content: Content, begin: int, behind: int) -> Shape:
    """Of a record that has been found to be sound."""
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
    return Shape(behind - begin, timestamp, range(delta - begin, delta_end - begin), lengths)


def _field(content: Content, begin: int, place: int, lengths: list[int]) -> int:
    """The place behind a key, a value or a part of a header. Where its length stands is added to `lengths`."""
    length, content_place = _number(content, place)
    lengths += range(place - begin, content_place - begin)
    return content_place if length & 1 else content_place + (length >> 1)


def _walk(content: Content, end: int, place: int, deltas: range) -> tuple[int, bool]:  # noqa: C901
    """Check records one by one. Return the place behind them, and whether each has a key.

    Raises InvalidRecord, IndexError.
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
        behind = place + (length >> 1)
        if length & 1 or behind > end:
            raise InvalidRecord(f"record {delta} reaches behind the batch")
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
        headers = content[place]
        place = place + 1 if not headers else _behind_headers(content, place, behind)
        if place != behind:
            raise InvalidRecord(f"record {delta} is not as long as it says")
    return place, have_keys


def _behind_headers(content: Content, place: int, behind: int) -> int:
    count, place = _number(content, place)
    if count & 1 or count > behind - place:
        raise InvalidRecord(f"{count >> 1} headers in {behind - place} bytes")
    for _ in range(count >> 1):
        name, place = _number(content, place)
        if name & 1:
            raise InvalidRecord("a header without a name")
        value, place = _number(content, place + (name >> 1))
        if not value & 1:
            place += value >> 1
    return place


def _number(content: Content, place: int) -> tuple[int, int]:
    """A number as it is written, zigzag, and the place behind it. Raises InvalidRecord, IndexError."""
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
