"""The hash chain of an audit log: each line has the SHA-256 of itself and of the line before it. Pure.

A line that is changed, removed or inserted breaks the chain at its place. Lines that are cut off at the end do not:
compare the last hash with one that was noted elsewhere, such as the broker's own log or the audit topic.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

BEGINNING = "0" * 64
"""The hash before the first line of a log."""
LINE_BYTES_MAX = 16 << 10

_HASH, _END = b',"hash":"', b'"}'
_SUFFIX_BYTES = len(_HASH) + 64 + len(_END)


class ChainHead(NamedTuple):
    """The last line of a chain: its sequence number and its hash."""

    sequence: int = 0
    hash: str = BEGINNING


class BrokenLine(NamedTuple):
    """The first line that does not fit: its number in the file, from 1 on, and why it does not."""

    line: int
    reason: str


def append(last: ChainHead, fields: Mapping[str, Any]) -> tuple[ChainHead, bytes]:
    """Return the link and the line, with its newline, that follow `last`."""
    sequence = last.sequence + 1
    row = {"sequence": sequence, **fields, "previous": last.hash}
    body = json.dumps(row, separators=(",", ":"), ensure_ascii=True).encode()[:-1]
    link = ChainHead(sequence, hashlib.sha256(body).hexdigest())
    return link, body + _HASH + link.hash.encode() + _END + b"\n"


def link_of(line: bytes) -> tuple[ChainHead, str]:
    """Return the link of one line, without its newline, and the hash of the line before it. Raises ValueError."""
    body, suffix = line[:-_SUFFIX_BYTES], line[-_SUFFIX_BYTES:]
    if not (suffix.startswith(_HASH) and suffix.endswith(_END)):
        raise ValueError("it is not a line of an audit log")
    claimed = suffix[len(_HASH) : -len(_END)].decode("ascii", "replace")
    if hashlib.sha256(body).hexdigest() != claimed:
        raise ValueError("its content does not have its hash")
    row = json.loads(body + b"}")
    sequence, previous = row.get("sequence"), row.get("previous")
    if type(sequence) is not int or type(previous) is not str:
        raise ValueError("it has no sequence number or no hash of the line before it")
    return ChainHead(sequence, claimed), previous


def verify(lines: Iterable[bytes], last: ChainHead | None) -> Iterator[ChainHead | BrokenLine]:
    """Yield the link of each line, and end with Broken at the first that does not fit.

    `last` is the link before the first line; None if that is not known, as older files were removed.
    """
    for number, line in enumerate(lines, 1):
        try:
            link, previous = link_of(line)
        except ValueError as error:
            yield BrokenLine(number, str(error))
            return
        if last is not None and link.sequence != last.sequence + 1:
            yield BrokenLine(number, f"it has the sequence number {link.sequence} where {last.sequence + 1} belongs")
            return
        if last is not None and previous != last.hash:
            yield BrokenLine(number, "it does not follow from the line before it")
            return
        last = link
        yield link
