"""Model-based test: a log's transactions are those that a list of its batches gives by brute force.

Batches are appended, truncated, flushed and checkpointed, the process is killed or the machine loses power at any
change, bits of the files flip, a lost end is cut or comes back, and retention removes segments. The model reads the
batches that the log has.
"""

import random
from contextlib import suppress

import pytest
from log_fixture import ALL_BYTES, LogFixture
from refetch import refetch

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import BatchHeader, check, split
from cordwood.storage.config import LogConfig
from cordwood.storage.control import EndTransactionMarker, decode_marker
from cordwood.storage.errors import InvalidTransactionState, LostTail, OutOfOrderSequence, StaleProducerEpoch

TINY = LogConfig(segment_bytes=400, index_interval_bytes=150, retention_ms=-1)
ROOMY = LogConfig(segment_bytes=4000, index_interval_bytes=1000, retention_ms=-1)
PRODUCERS = (1, 2, 3)

SEEDS, STEPS = 30, 120


class Transaction:
    """A transaction of the model. `marker` is an offset; None if it is ongoing."""

    def __init__(self, producer: int, first: int) -> None:
        self.producer, self.first = producer, first
        self.marker: int | None = None
        self.is_commit = False


def transactions_of(batches: list[tuple[BatchHeader, EndTransactionMarker | None]]) -> list[Transaction]:
    found: list[Transaction] = []
    for header, marker in batches:
        ongoing = [each for each in found if each.producer == header.producer_id and each.marker is None]
        if marker is not None:
            for each in ongoing:
                each.marker, each.is_commit = header.base_offset, marker.is_commit
        elif header.is_transactional and not ongoing:
            found.append(Transaction(header.producer_id, header.base_offset))
    return found


class LogOfTransactions:
    """A log and the batches that it has from offset 0 on, also those that retention has removed since.

    A step may fail: the process is killed or the machine loses power within it, and the log is opened again.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = LogFixture(self.rng.choice([TINY, ROOMY]), SimulatedDisk(random.Random(seed)))
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.lost: tuple[list[bytes], int] | None = None
        """The batches before a loss, and the log's end then, until they are back."""
        self.steps = [
            *6 * [self.send],
            *5 * [self.mark],
            *3 * [self.flush, self.commit, self.checkpoint],
            *2 * [self.append, self.truncate],
            *[self.truncate_committed, self.retain, self.power_cut, self.kill, self.close, self.damage],
        ]

    def step(self) -> None:
        step = self.rng.choice(self.steps)
        if self.rng.random() < 0.1:
            self.log.disk.faults.die_after(self.rng.randrange(12))
        try:
            step()
        except Died:
            self.log.disk.faults.die_after(None)
            if self.rng.random() < 0.5:
                self.log.power_cut()
            self._reopen()
        self.log.disk.faults.die_after(None)

    def send(self) -> None:
        producer = self.rng.choice(PRODUCERS)
        epoch, sequence = self._next_of(producer)
        padding = self.rng.choice([0, 0, 300])
        values = [f"{sequence + place}".ljust(padding, ".") for place in range(self.rng.randint(1, 3))]
        self.log.send(sequence, *values, producer=producer, epoch=epoch, transactional=True)
        self._learn()

    def append(self) -> None:
        self.log.append("plain")
        self._learn()

    def mark(self) -> None:
        ongoing = [each.producer for each in transactions_of(self._known()) if each.marker is None]
        producer, is_v2 = self.rng.choice([*3 * ongoing, *PRODUCERS]), self.rng.random() < 0.5
        epoch, _ = self._next_of(producer)
        self.log.mark(commit=self.rng.random() < 0.3, producer=producer, epoch=epoch + is_v2, v2=is_v2)
        self._learn()

    def flush(self) -> None:
        self.log.flush()

    def commit(self) -> None:
        """Raise the high watermark, sometimes to what is not on this disk (flush.policy=os)."""
        if self.rng.random() < 0.8:
            self.log.flush()
        self.high_watermark = self.log.end
        self.log.log.producers.transactions.committed_to(min(self.high_watermark, self.log.log.flushed_end))

    def checkpoint(self) -> None:
        self.log.checkpoint()

    def truncate(self) -> None:
        self._truncate(max(self.log.start, self.high_watermark))

    def truncate_committed(self) -> None:
        """Truncate as after an unclean election, unless retention has removed records of an undecided transaction.

        Of such a transaction the log has no first offset any more, and perhaps nothing at all.
        """
        begun = [each for each in transactions_of(self._known()) if each.first < self.log.start]
        markers = [self.log.end if each.marker is None else each.marker + 1 for each in begun]
        self._truncate(max([self.log.start, *markers]))

    def _truncate(self, lowest: int) -> None:
        ends = [header.end for header, _ in self._headers() if header.end >= lowest][-8:]
        if ends:
            end = self.rng.choice(ends)
            self.log.leader_epoch += 1
            self.log.truncate(end)
            self.high_watermark = min(self.high_watermark, end)
            self._learn()

    def retain(self) -> None:
        self.log.flush().configure(retention_bytes=self.rng.randrange(3000)).retain()

    def power_cut(self) -> None:
        self.log.power_cut(keep=self.rng.choice([None, 0, 0.5]))
        self._reopen()

    def kill(self) -> None:
        self.log.kill()
        self._reopen()

    def close(self) -> None:
        self.log.close()
        self._reopen()

    def damage(self) -> None:
        """Flip a bit. A lost end is cut or comes back, and other damage goes unless recovery has made it good.

        Not where retention has removed records of a transaction that ends here: its first offset is not known again.
        """
        self.log.flush()
        if any(each.first < self.log.start <= (each.marker or self.log.end) for each in transactions_of(self._known())):
            return
        disk, base = self.log.disk, self.rng.choice(self.log.bases or [0])
        path = self.log.path(base, self.rng.choice(["log", "log", "txnindex"]))
        used = disk.content(path).rstrip(b"\0") if disk.exists(path) else b""
        if not used:
            return
        position, bit = self.rng.randrange(len(used)), self.rng.randrange(8)
        disk.flip(path, position, bit)
        self.log.reopen()
        lost = [damaged.offset for damaged in self.log.damage if isinstance(damaged, LostTail)]
        end = min(lost, default=self.log.end)
        if end <= self.log.log.local_start or not (lost or path in [damaged.path for damaged in self.log.damage]):
            disk.flip(path, position, bit)
            self.log.reopen()
        elif lost and self.rng.random() < 0.5:
            self._go_on()
        elif lost:
            if self.rng.random() < 0.7:
                # It follows before it is cut.
                self.log.log.producers.transactions.committed_to(min(self.high_watermark, self.log.end))
            self.log.truncate(end)
            self.high_watermark = min(self.high_watermark, end)
        elif path.endswith(".log"):
            disk.flip(path, position, bit)
            self.log.reopen()
        self._learn()

    def _go_on(self) -> None:
        """Append to a log without its lost end, and refetch that."""
        self.lost = self.batches, self.log.end
        steps = [*3 * [self.log.flush, self.log.checkpoint, self.send, self.mark], self.log.append, self.log.reopen]
        for _ in range(self.rng.randint(1, 8)):
            # What the log knows of a producer can be older than what that sends.
            with suppress(OutOfOrderSequence, StaleProducerEpoch, InvalidTransactionState):
                self.rng.choice([*steps, self._flush_and_kill])()

        def read(offset: int, _end: int) -> bytes:
            return next(batch for header, batch in self._headers() if header.base_offset <= offset < header.end)

        refetch(self.log, read)
        self.lost = None

    def _flush_and_kill(self) -> None:
        self.log.flush().reopen()

    def check(self) -> None:
        log, start, end = self.log, self.log.start, self.log.end
        known = transactions_of(self._known())
        aborted = [(each, each.marker) for each in known if each.marker is not None and not each.is_commit]
        for low, high in ((start, end), ((start + end) // 2, end), (start, (start + end) // 2)):
            expected = [(each.producer, each.first) for each, at in aborted if each.first < high and at >= low]
            if low < high:
                assert log.aborted(low, high) == expected
        for watermark in {self.high_watermark, (self.high_watermark + end) // 2, end}:
            unstable = [each.first for each in known if each.marker is None or each.marker >= watermark]
            assert log.last_stable(watermark) == min(max(min(unstable, default=watermark), start), watermark)

    def _known(self) -> list[tuple[BatchHeader, EndTransactionMarker | None]]:
        return [(header, decode_marker(batch) if header.is_control else None) for header, batch in self._headers()]

    def _headers(self) -> list[tuple[BatchHeader, bytes]]:
        return [(check(batch), batch) for batch in self.batches]

    def _reopen(self) -> None:
        self.log.reopen()
        assert [damaged for damaged in self.log.damage if not damaged.path.endswith("index")] == []
        self._learn()
        self.high_watermark = min(self.high_watermark, self.log.end)

    def _learn(self) -> None:
        """Take the batches that the log has, and keep those before its start, or before the end that it has lost."""
        if self.lost is not None:
            before, end = self.lost
            self.batches = [*before, *split(self.log.read(end, ALL_BYTES))]
            return
        start = self.log.start
        read: list[bytes] = []
        offset = start
        while data := self.log.read(offset, ALL_BYTES):
            read += split(data)
            offset = check(read[-1]).end
        first = check(read[0]).base_offset if read else self.log.end
        self.batches = [batch for header, batch in self._headers() if header.end <= first] + read

    def _next_of(self, producer: int) -> tuple[int, int]:
        """Return the epoch and the sequence number with which the producer goes on."""
        epoch = sequence = 0
        for header, _ in self._headers():
            if header.producer_id == producer:
                if header.producer_epoch > epoch:
                    epoch, sequence = header.producer_epoch, 0
                if not header.is_control:
                    sequence = header.last_sequence + 1
        return epoch, sequence


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_logs_transactions_are_those_of_its_batches(seed: int) -> None:
    log = LogOfTransactions(seed)
    for _ in range(STEPS):
        log.step()
        log.check()
