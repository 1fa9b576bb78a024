"""The start position of every record in a batch, which depends on the length of the record before it.

The walk may return wrong positions for invalid bytes: `records.py` checks all of them against the records' lengths.
"""

import numpy as np

from cordwood.columnar.decompression import DecompressedBodies, DecompressedBody
from cordwood.columnar.varints import RECORD_BYTES, Octets, Places, two_octets, varints
from cordwood.storage.contents import RECORD_BYTES_MIN
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch

ABREAST_RECORDS_PER_STEP = 100
"""A numpy step over all batches takes about as long as this many records in a Python loop."""

RUN_MIN = 8
PROBE = 64
LOOP_AFTER_NO_RUN = 256
LENGTH_BITS_MAX = 35


def walk(bodies: DecompressedBodies, octets: Octets) -> Places:
    """Return the position of every record's length, batch after batch. Raises CorruptBatch, IndexError."""
    counts = np.array([body.header.record_count for body in bodies.batches], dtype=np.int64)
    for body in bodies.batches:
        if not 0 < body.header.record_count <= (body.end - body.start) // RECORD_BYTES_MIN:
            raise CorruptBatch(f"{body.header.record_count} records in {body.end - body.start} bytes")
    if counts.sum() > ABREAST_RECORDS_PER_STEP * counts.max():
        return _abreast(bodies, octets, counts)
    return np.concatenate([_one_by_one(bodies.buffer, octets, body) for body in bodies.batches])


def _abreast(bodies: DecompressedBodies, octets: Octets, counts: Places) -> Places:
    """Walk all batches in parallel, record by record. Efficient for many batches."""
    longest_first = np.argsort(-counts, kind="stable")
    falling = counts[longest_first]
    begins = (np.cumsum(counts) - counts)[longest_first]
    places = np.array([body.start for body in bodies.batches], dtype=np.int64)[longest_first]
    found = np.empty(counts.sum(), dtype=np.int64)
    still = np.searchsorted(-falling, -np.arange(falling[0]))
    for step, batches in enumerate(still.tolist()):
        here = places[:batches]
        found[begins[:batches] + step] = here
        taken = RECORD_BYTES.take(two_octets(octets, here))
        if not taken.all():
            lengths, ends_at = varints(octets, here)
            taken = ends_at - here + lengths
        here += taken
    return found


def _one_by_one(buffer: Bytes, octets: Octets, body: DecompressedBody) -> Places:
    """Walk one batch: runs of records of equal length with numpy, others in a loop."""
    count, place = body.header.record_count, body.start
    found = np.empty(count, dtype=np.int64)
    done = 0
    while done < count:
        run, stride = _run(buffer, octets, place, body.end, count - done)
        found[done : done + run] = np.arange(place, place + run * stride, stride)
        done, place = done + run, place + run * stride
        if run < RUN_MIN:
            stretch, place = _loop(buffer, place, min(LOOP_AFTER_NO_RUN, count - done))
            found[done : done + len(stretch)] = stretch
            done += len(stretch)
    return found


def _run(buffer: Bytes, octets: Octets, place: int, end: int, count_max: int) -> tuple[int, int]:
    """Return the number of records from `place` on with the same length field, at least one, and their size."""
    length, content = _length_at(buffer, place)
    width, stride = content - place, content - place + length
    fitting = max(1, min(count_max, (end - place) // stride))
    run, window = 1, PROBE
    while run < fitting:
        until = min(run + window, fitting)
        same = _begin_alike(octets, place, stride, width, run, until)
        if same < until:
            return same, stride
        run, window = until, 4 * window
    return run, stride


def _begin_alike(octets: Octets, place: int, stride: int, width: int, begin: int, end: int) -> int:
    """Return the first record from `begin` to `end` whose length field differs from the one at `place`, else `end`."""
    alike = np.ones(end - begin, dtype=bool)
    for at in range(place, place + width):
        alike &= octets[at + begin * stride : at + (end - 1) * stride + 1 : stride] == octets[at]
    return end if alike.all() else begin + int(alike.argmin())


def _length_at(buffer: Bytes, place: int) -> tuple[int, int]:
    """Return a record's length, assumed to be positive, and the position after it. Raises CorruptBatch."""
    number = 0
    for shift in range(0, LENGTH_BITS_MAX, 7):
        octet = buffer[place]
        place += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number >> 1, place
    raise CorruptBatch("a record's length of more than 32 bits")


def _loop(buffer: Bytes, place: int, count: int) -> tuple[list[int], int]:
    """Return the positions of `count` records, and the position after the last. Raises CorruptBatch."""
    found = []
    for _ in range(count):
        found.append(place)
        octet = buffer[place]
        if octet < 0x80:
            place += 1 + (octet >> 1)
        elif (second := buffer[place + 1]) < 0x80:
            place += 2 + ((octet & 0x7F | second << 7) >> 1)
        else:
            length, content = _length_at(buffer, place)
            place = content + length
    return found, place
