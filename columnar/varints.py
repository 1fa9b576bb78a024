"""Vectorized decoding of zigzag varints at many positions of a buffer."""

import numpy as np
from numpy.typing import NDArray

from cordwood.storage.errors import CorruptBatch

Octets = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Places = NDArray[np.int64]

VARINT_BYTES_MAX = 10


def varints(octets: Octets, places: Places) -> tuple[Numbers, Places]:
    """Return the varint at each position, and the position after it, which is past the buffer for invalid bytes.

    Raises CorruptBatch for a varint of more than ten bytes, IndexError for a position past the end of the buffer.
    """
    pairs = two_octets(octets, places)
    numbers, widths = _NUMBERS.take(pairs), _WIDTHS.take(pairs)
    if not widths.all():
        longer = np.flatnonzero(widths == 0)
        numbers[longer], widths[longer] = _read_longer(octets, places[longer])
    return numbers, places + widths


def two_octets(octets: Octets, places: Places) -> NDArray[np.uint16]:
    """Return the octet at each position and the next octet as its high byte. Raises IndexError."""
    second = octets.take(places + 1, mode="clip").astype(np.uint16)
    return second << np.uint16(8) | octets.take(places)


def _read_longer(octets: Octets, places: Places) -> tuple[Numbers, Numbers]:
    """Decode varints seven bits at a time. Return the numbers and their sizes in octets. Raises CorruptBatch."""
    numbers = np.zeros(len(places), dtype=np.uint64)
    widths = np.zeros(len(places), dtype=np.int64)
    rest = np.arange(len(places))
    for nth in range(VARINT_BYTES_MAX):
        octet = octets.take(places[rest] + nth)
        numbers[rest] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * nth)
        widths[rest] += 1
        rest = rest[octet > 0x7F]
        if not len(rest):
            return _unzigzag(numbers), widths
    raise CorruptBatch("a number of more than 64 bits")


def _unzigzag(numbers: NDArray[np.uint64]) -> Numbers:
    signs = (numbers & np.uint64(1)).view(np.int64)
    return (numbers >> np.uint64(1)).view(np.int64) ^ -signs


def _tables() -> tuple[Numbers, Numbers]:
    """Return for every pair of octets the varint that it begins with, and its size; 0 for more than two octets."""
    pairs = np.arange(1 << 16, dtype=np.uint64)
    first, second = pairs & np.uint64(0xFF), pairs >> np.uint64(8)
    is_one, is_two = first < 0x80, second < 0x80
    one, two = first, (first & np.uint64(0x7F)) | second << np.uint64(7)
    return _unzigzag(np.where(is_one, one, two)), np.where(is_one, 1, np.where(is_two, 2, 0))


_NUMBERS, _WIDTHS = _tables()
RECORD_BYTES = np.where((_WIDTHS > 0) & (_NUMBERS >= 0), _NUMBERS + _WIDTHS, 0)
"""For every pair of octets the total size of a record that begins with it; 0 if two octets are not sufficient."""
