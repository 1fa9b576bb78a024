"""The scrubber: fresh reads check every byte of a log, and concurrent truncation or retention is not damage."""

import pytest
from log_fixture import DIRECTORY, LogFixture
from raw_batches import raw_batch

from cordwood.storage.batch import Compression, check
from cordwood.storage.errors import DamagedLog
from cordwood.storage.rewrite import write_index_again
from cordwood.storage.scrub import (
    Undecodable,
    Unpacked,
    is_still_damaged,
    segment_with,
    unpacked,
    verify,
    view_of,
)
from cordwood.storage.segment import Segment
from cordwood.storage.segment_files import SegmentFile

MANY = [f"value-{number}" for number in range(60)]


@pytest.fixture
def filled(log: LogFixture) -> LogFixture:
    """Return a log of several segments. The last one ends with batches that no closed index interval covers."""
    return log.append(*MANY).flush().checkpoint()


def found(log: LogFixture) -> list[DamagedLog]:
    return [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]


def test_all_bytes_are_read_and_nothing_is_wrong(filled: LogFixture) -> None:
    proofs = list(verify(view_of(filled.log)))
    assert all(isinstance(proof, int | Unpacked) for proof in proofs)
    assert sum(proof for proof in proofs if isinstance(proof, int)) >= filled.log.size


def test_every_flipped_bit_is_found_in_its_file(filled: LogFixture) -> None:
    sizes = {segment.path: segment.size for segment in filled.log.segments}
    for path in filled.disk.files():
        if not path.startswith(DIRECTORY):
            continue
        for position in range(sizes.get(path, len(filled.disk.content(path)))):
            filled.disk.flip(path, position, 2)
            assert [damage.path for damage in found(filled)] == [path]
            filled.disk.flip(path, position, 2)


@pytest.mark.parametrize("suffix", ["log", "index"])
def test_a_file_that_is_gone_is_found(filled: LogFixture, suffix: str) -> None:
    filled.disk.remove(filled.path(filled.bases[1], suffix))
    assert next(damage.path for damage in found(filled)) == filled.path(filled.bases[1], suffix)


def test_what_was_truncated_meanwhile_is_no_damage(filled: LogFixture) -> None:
    proofs = verify(view_of(filled.log))
    filled.truncate(filled.bases[1] + 1).append("other").flush()
    suspected = [proof for proof in proofs if isinstance(proof, DamagedLog)]
    assert suspected
    assert not any(is_still_damaged(filled.log, damage) for damage in suspected)


def test_what_retention_removed_meanwhile_is_no_damage(filled: LogFixture) -> None:
    proofs = verify(view_of(filled.log))
    filled.configure(retention_bytes=1000)
    assert filled.retain() > 1
    suspected = [proof for proof in proofs if isinstance(proof, DamagedLog)]
    assert suspected
    assert not any(is_still_damaged(filled.log, damage) for damage in suspected)


def test_damage_that_lasts_is_confirmed(filled: LogFixture) -> None:
    filled.disk.flip(filled.path(filled.bases[-1]), 70, 1)
    [damage] = found(filled)
    assert is_still_damaged(filled.log, damage)


@pytest.mark.parametrize("at", [0, -1], ids=["sealed", "active"])
def test_a_damaged_index_is_written_again(filled: LogFixture, at: int) -> None:
    path = filled.path(filled.bases[at], "index")
    filled.disk.flip(path, 30, 1)
    [damage] = found(filled)
    assert damage.path == path
    segment = segment_with(filled.log, path)
    assert segment is not None
    write_index_again(segment)
    assert found(filled) == []
    assert filled.reopen().values() == MANY


def test_records_that_an_index_cannot_be_rebuilt_from_are_named(filled: LogFixture) -> None:
    base = filled.bases[0]
    filled.reopen()
    filled.disk.flip(filled.path(base, "index"), 3, 1)
    # From the damaged base offset of the second batch on, no batch header is valid.
    second = next(filled.log.segments[0].headers(0, filled.log.segments[0].size))[1].size
    filled.reopen()
    filled.disk.flip(filled.path(base), second + 3, 1)
    segment = segment_with(filled.log, filled.path(base))
    assert segment is not None
    write_index_again(segment)
    # The rebuilt index marks the unreadable range as damage. The segment never serves it.
    with pytest.raises(DamagedLog, match=r"\.log is damaged"):
        segment.read(0, segment.size)


def test_an_index_cannot_be_rebuilt_from_a_segment_without_bytes(filled: LogFixture) -> None:
    base = filled.bases[0]
    filled.disk.remove(filled.path(base, "index"))
    filled.disk.open(filled.path(base)).truncate(0)
    segment = Segment.sealed(filled.disk, DIRECTORY, SegmentFile(base, 0), filled.bases[1], 200, filled.log.opened)
    with pytest.raises(DamagedLog, match="ends at offset 0"):
        write_index_again(segment)


UNDECODABLE = raw_batch(b"nothing that was ever compressed", 3, Compression.GZIP)


def append_undecodable(log: LogFixture) -> None:
    """Append a batch that cannot be decompressed, which earlier versions accepted."""
    log.log.append(UNDECODABLE, check(UNDECODABLE), 0, log.now)


def scrubbed(log: LogFixture) -> list[int]:
    """Return the offsets of the batches that one scrub pass reports as undecodable."""
    offsets = []
    for proof in verify(view_of(log.log)):
        assert not isinstance(proof, DamagedLog)
        if isinstance(proof, Unpacked):
            unpacked(log.log, proof)
        elif isinstance(proof, Undecodable):
            offsets.append(proof.offset)
    return offsets


def test_a_batch_that_no_reader_can_unpack_is_found_once(log: LogFixture) -> None:
    log.append(*MANY[:10])
    append_undecodable(log)
    log.append(*MANY[:20]).flush()
    assert scrubbed(log) == [10]
    assert scrubbed(log) == []
    log.close().reopen()
    assert scrubbed(log) == [10]


def test_what_comes_to_stand_in_its_place_is_looked_at_again(log: LogFixture) -> None:
    log.append(*MANY[:5]).flush()
    assert scrubbed(log) == []
    proofs = verify(view_of(log.log))
    log.truncate(2)
    append_undecodable(log)
    log.append(*MANY[:20]).flush()
    for proof in proofs:
        if isinstance(proof, Unpacked):
            unpacked(log.log, proof)
    assert scrubbed(log) == [2]
