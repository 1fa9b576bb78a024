"""Model-based test: a log and a plain list hold the same records over appends, truncations, kills and power cuts."""

import random
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from log_fixture import ALL_BYTES, LogFixture

from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.faults import Died
from cordwood.storage.batch import BatchHeader, check, split
from cordwood.storage.config import LogConfig
from cordwood.storage.errors import OutOfOrderSequence
from cordwood.storage.records import Record, encode

TINY = LogConfig(segment_bytes=400, index_interval_bytes=150, retention_ms=-1)
ROOMY = LogConfig(segment_bytes=6000, index_interval_bytes=1000, retention_ms=-1)
PRODUCERS = (7, 8)

a_share = st.floats(0, 1)
a_producer = st.sampled_from(PRODUCERS)
some_records = st.integers(1, 4)
padding = st.sampled_from([0, 0, 700])
"""Large enough for a record to span several sectors."""


class LogAgainstAList(RuleBasedStateMachine):
    """A log and its model: `values[n]` is the record at offset n, and all records below `sure_end` are flushed.

    Until the next flush, a power cut may restore truncated records: `once` holds the lists before each truncation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log = LogFixture(TINY, SimulatedDisk(random.Random(0)))
        self.values: list[str] = []
        self.once: list[list[str]] = []
        self.sure_end = 0
        self.sure_start = self.wanted_start = 0
        self.written = 0
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)

    @initialize(config=st.sampled_from([TINY, ROOMY]))
    def create(self, config: LogConfig) -> None:
        self.log = LogFixture(config, SimulatedDisk(random.Random(0)))

    @rule(count=some_records, padding=padding)
    def append(self, count: int, padding: int) -> None:
        self.log.append_batch(*self._new_values(count, padding))

    @rule(count=some_records, padding=padding, producer=a_producer)
    def send(self, count: int, padding: int, producer: int) -> None:
        sequence = self.next_sequence[producer]
        values = self._new_values(count, padding)
        self.log.send(sequence, *values, producer=producer)
        self.next_sequence[producer] = sequence + count

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.sure_end = len(self.values)
        self.once.clear()

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.sure_start = self.wanted_start

    @rule(share=a_share)
    def truncate(self, share: float) -> None:
        ends = [self.log.start, *(header.end for header in self._headers() if header.end > self.log.start)]
        if self._headers() and self._headers()[0].base_offset < self.log.start:
            # No batch spans two leader epochs, so no truncation ends within the batch that contains the log start.
            del ends[0]
        end = ends[round((len(ends) - 1) * share)]
        self.once.append(self.values)
        self.sure_end = min(self.sure_end, end)
        self.log.leader_epoch += 1
        self.log.truncate(end)
        self.values = self.values[:end]
        self._learn_sequences()

    @rule(share=a_share)
    def delete_records(self, share: float) -> None:
        self.wanted_start = max(self.log.start, round(self.sure_end * share))
        self.log.delete_records(self.wanted_start)

    @rule(keep_bytes=st.integers(0, 2000))
    def retain(self, keep_bytes: int) -> None:
        self.wanted_start = self.sure_end
        self.log.configure(retention_bytes=keep_bytes).retain()
        self.sure_start = self.wanted_start = self.log.start

    @rule(share=a_share, max_bytes=st.integers(0, 500))
    def read(self, share: float, max_bytes: int) -> None:
        start = self.log.start + round((self.log.end - self.log.start) * share)
        found = [(record.value or b"").decode() for record in self.log.records(start, max_bytes)]
        assert found == self.values[start:]

    @rule(keep=st.none() | a_share, seed=st.integers(0, 1 << 16))
    def power_cut(self, keep: float | None, seed: int) -> None:
        self.log.disk.rng = random.Random(seed)
        self.log.power_cut(keep=keep)
        self._reopen(may_lose=True)
        self.once.clear()

    @rule()
    def kill(self) -> None:
        self.log.kill()
        self._reopen(may_lose=False)

    @rule()
    def close(self) -> None:
        self.log.close()
        self.sure_start = self.wanted_start
        self._reopen(may_lose=False)

    @rule(
        what=st.sampled_from(["append", "send", "flush", "checkpoint", "truncate", "retain", "close", "reopen"]),
        padding=padding,
        changes=st.integers(0, 12),
        is_power_cut=st.booleans(),
        seed=st.integers(0, 1 << 16),
    )
    def die_within(self, what: str, padding: int, changes: int, is_power_cut: bool, seed: int) -> None:
        self.log.disk.rng = random.Random(seed)
        self.log.disk.faults.die_after(changes)
        try:
            self._does(what, padding)()
        except Died:
            if is_power_cut:
                self.log.power_cut()
            self._reopen(may_lose=True)
            if is_power_cut:
                self.once.clear()
        finally:
            self.log.disk.faults.die_after(None)

    @precondition(lambda self: self.values)
    @invariant()
    def its_ends_are_known(self) -> None:
        assert self.log.end == len(self.values)
        assert self.sure_start <= self.log.start <= self.log.end

    def _does(self, what: str, padding: int) -> Callable[[], object]:
        return {
            "append": lambda: self.append(3, padding),
            "send": lambda: self.send(2, padding, PRODUCERS[0]),
            "flush": self.flush,
            "checkpoint": self.checkpoint,
            "truncate": lambda: self.truncate(0.5),
            "retain": lambda: self.retain(500),
            "close": self.close,
            "reopen": self.kill,
        }[what]

    def _new_values(self, count: int, padding: int) -> list[str]:
        values = [f"value {self.written + place}".ljust(padding, ".") for place in range(count)]
        self.written += count
        self.values = self.values + values
        return values

    def _reopen(self, *, may_lose: bool) -> None:
        self.log.reopen()
        # The index is not synced with the log. Recovery discards a torn index and rebuilds it.
        assert [damaged for damaged in self.log.damage if damaged.path.endswith(".log")] == []
        assert self.sure_start <= self.log.start <= max(self.wanted_start, self.sure_start)
        found, start = self.log.values(), self.log.start
        allowed = [self.values, *self.once] if may_lose else [self.values]
        assert any(found == values[start : self.log.end] for values in allowed), "no mixture, no gap"
        assert self.log.end >= self.sure_end if may_lose else self.log.end == len(self.values)
        whole = next(values for values in allowed if found == values[start : self.log.end])
        self.values = whole[: self.log.end]
        self.sure_end, self.sure_start, self.wanted_start = self.log.end, start, start
        self._producers_are_known()

    def _producers_are_known(self) -> None:
        """Check that the log knows each producer's last five batches and accepts only the next sequence number."""
        self._learn_sequences()
        for producer in PRODUCERS:
            batches = [header for header in self._headers() if header.producer_id == producer]
            for header in batches[-5:]:
                known = self.log.log.producers.check(header)
                assert known is not None, f"{header} is in the log"
                assert (known.base_offset, known.end_offset) == (header.base_offset, header.end)
            if batches:
                due = self.next_sequence[producer]
                assert self.log.log.producers.check(numbered(producer, due)) is None
                try:
                    self.log.log.producers.check(numbered(producer, due + 1))
                except OutOfOrderSequence:
                    continue
                raise AssertionError(f"a gap after sequence {due} was let through")

    def _learn_sequences(self) -> None:
        for producer in PRODUCERS:
            last = [header.last_sequence for header in self._headers() if header.producer_id == producer][-1:]
            known = dict(self.log.log.producers).get(producer)
            if last:
                self.next_sequence[producer] = last[0] + 1
            else:
                self.next_sequence[producer] = known.next_sequence if known is not None else 0

    def _headers(self) -> list[BatchHeader]:
        headers, offset = [], self.log.start
        while data := self.log.read(offset, ALL_BYTES):
            headers += [check(batch) for batch in split(data)]
            offset = headers[-1].end
        return headers


def numbered(producer: int, sequence: int) -> BatchHeader:
    one = Record(0, 0, None, b"")
    return check(encode([one], producer_id=producer, producer_epoch=0, base_sequence=sequence))


LogAgainstAList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
TestLogAgainstAList = LogAgainstAList.TestCase
