"""Damage that a log has over several restarts: it stays reported, and no start takes it for something else."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from log_fixture import LogFixture

from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import HEADER_BYTES, STAMP_BYTES, check, stamp
from cordwood.storage.errors import DamagedLog, OutOfOrderSequence
from cordwood.storage.records import Record, encode
from cordwood.storage.rewrite import write_index_again
from cordwood.storage.scrub import segment_with, verify, view_of

BATCH_BYTES = 69
"""Size of a batch of a one-letter value."""
STEPS_MAX = 60


def has_reported(log: LogFixture) -> bool:
    """Return whether the start, a scrub, or the repair of an index that the scrub finds reports lost records."""
    found = [*log.damage, *scrubbed(log)]
    for damage in found:
        if damage.path.endswith(".index") and (segment := segment_with(log.log, damage.path)) is not None:
            with suppress(DamagedLog):
                write_index_again(segment)
                continue
            return True
    return any(damage.path.endswith(".log") for damage in (*found, *scrubbed(log)))


def scrubbed(log: LogFixture) -> list[DamagedLog]:
    return [proof for proof in verify(view_of(log.log)) if isinstance(proof, DamagedLog)]


def assert_damaged(log: LogFixture, *offsets: int) -> None:
    for offset in offsets:
        with pytest.raises(DamagedLog):
            log.read(offset)


def restart(log: LogFixture, how: str) -> None:
    """Append something, so that the log goes on with its damage, and open it again."""
    log.append("later").flush()
    match how:
        case "checkpoint":
            log.checkpoint()
        case "close":
            log.close()
    log.reopen()


def with_gaps(log: LogFixture, *offsets: int) -> LogFixture:
    """Take batches of one record at these offsets from a leader, as a follower of a compacted log does."""
    for offset in offsets:
        batch = encode([Record(0, log.now, None, b"x")])
        log.take_stamped(b"".join((stamp(check(batch), offset, 0), batch[STAMP_BYTES:])))
    return log


@pytest.mark.parametrize("how", ["kill", "checkpoint", "close"])
def test_damage_at_the_beginning_of_a_log_does_not_raise_its_start(log: LogFixture, how: str) -> None:
    """The epoch of the first record is unknown then: the known epochs begin after it."""
    log.append("a", "b", "c").flush()
    log.disk.flip(log.path(0), HEADER_BYTES + 5, 0)
    log.reopen()
    assert [damage.position for damage in log.damage] == [0]
    for _ in range(3):
        restart(log, how)
        assert log.start == 0
        assert_damaged(log, 0)
        assert log.values(1)[:2] == ["b", "c"]


def test_a_start_that_the_epochs_alone_have_counts_although_the_first_of_them_is_unknown() -> None:
    """A crash may come between the two files of a checkpoint: the offsets below the start may be in no epoch."""
    steps = 0
    for step in range(STEPS_MAX):
        log = LogFixture().append(*"abcdef").flush()
        log.disk.flip(log.path(0), 4 * BATCH_BYTES + HEADER_BYTES + 5, 0)
        log.reopen().append("g").flush().checkpoint().delete_records(4)
        log.disk.faults.die_after(step)
        try:
            log.checkpoint()
        except Died:
            log.reopen()
            steps += 1
        else:
            break
        assert log.start in (0, 4), f"step {step}"
        epochs = [log.log.epochs.epoch_at(offset) for offset in range(log.start, log.end)]
        assert epochs == [0] * 7 if log.start == 0 else [0] * 3, f"step {step}"
    assert 0 < steps < STEPS_MAX
    assert log.reopen().start == 4


@pytest.mark.parametrize("how", ["kill", "checkpoint", "close"])
def test_a_rewritten_segment_that_lost_its_end_is_no_gap_after_the_next_restart(log: LogFixture, how: str) -> None:
    with_gaps(log, 0, 3, 4, 9).flush().checkpoint()
    path = log.log.segments[-1].path
    log.disk.shorten(path, BATCH_BYTES)
    log.reopen()
    assert log.damage != []
    for _ in range(2):
        restart(log, how)
        assert_damaged(log, 4, 9)
        assert has_reported(log)


LOSSES: dict[str, Callable[[LogFixture, str], None]] = {
    "missing": lambda log, path: log.disk.lose(path),
    "empty": lambda log, path: log.disk.shorten(path, 0),
    "blank": lambda log, path: log.disk.zero(path, 0, len(log.disk.content(path))),
    "short": lambda log, path: log.disk.shorten(path, BATCH_BYTES),
}


@pytest.mark.parametrize("how", ["kill", "checkpoint", "close"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("place", [-2, -1])
@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_lost_records_are_reported_by_every_start(
    log: LogFixture, loss: str, place: int, how: str, is_checkpointed: bool
) -> None:
    log.append(*"abcdefghijklmnopqrstuvwxyz").append("x" * 900).append(*"abc").flush()
    if is_checkpointed:
        log.checkpoint()
    lost = log.log.segments[place]
    first = lost.base_offset + (loss == "short" and place == -1)
    LOSSES[loss](log, lost.path)
    log.reopen()
    if place == -1:
        assert_damaged(log, first, lost.end_offset - 1)
    for _ in range(3):
        restart(log, how)
        assert log.start == 0
        assert_damaged(log, first, lost.end_offset - 1)
        assert has_reported(log)
    assert len({segment.base_offset for segment in log.log.segments}) == len(log.log.segments)


def test_an_idempotent_producer_is_known_by_its_batches_beside_the_damage() -> None:
    log = LogFixture()
    for sequence in range(9):
        log.send(sequence, "x")
    log.flush()
    log.disk.flip(log.path(0), 4 * BATCH_BYTES + HEADER_BYTES + 5, 0)
    log.log.segments[0].close_interval()
    log.log.segments[0].save_index()
    log.reopen()
    assert log.damage != []
    assert [int(log.log.epochs.epoch_at(offset)) for offset in (0, 1, 6, 8)] == [0] * 4
    assert log.send(8, "again").is_duplicate
    with pytest.raises(OutOfOrderSequence):
        log.send(11, "gap")


def test_an_index_that_is_made_anew_vouches_for_no_wrong_offset(log: LogFixture) -> None:
    """A checksum of a batch does not cover its offset."""
    log.append(*"abcdefghijklmnopqrstuvwxyz").flush().checkpoint()
    first = log.log.segments[0]
    log.disk.flip(first.path, 2 * BATCH_BYTES + 5, 4)
    log.disk.lose(first.index_path)
    log.reopen()
    assert_damaged(log, 2)
    assert log.values(3)[0] == "d"
    assert has_reported(log)
