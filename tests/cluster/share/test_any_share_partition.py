"""Any sequence of acquisitions, acknowledgements, writes that fail, log starts and failovers of a share partition."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.share_partition import LogBatch, Run, SharePartition, ShareRules
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import FINAL, AcknowledgementBatch, AcknowledgementType, RecordState

LOCK_S = 10.0
LIMIT = 3
MEMBERS = ["a", "b", "c"]


@dataclass
class Known:
    """What members and the broker know of one record."""

    holder: str = ""
    deliveries: int = 0
    deadline: float = 0.0
    is_confirmed: bool = False
    """Whether its acknowledgement was answered, or it was found undeliverable."""
    said: list[AcknowledgementType] = field(default_factory=list)


class AnySharePartition:
    """`known` has every record that was delivered, `log` the batches. The coordinator's state is `stored`."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.rules = ShareRules(LIMIT, LOCK_S, rng.choice((1000, 10, 4)), rng.random() < 0.5)
        self.log: list[LogBatch] = []
        self.end = self.log_start = self.last_start = 0
        self.stored = SharePartitionState(start_offset=0)
        self.now = 0.0
        self.known: dict[int, Known] = {}
        self.state = SharePartition(0, (), self.rules)
        self.under_way: dict[int, tuple[AcknowledgementType | None, int]] | None = None
        self.waiting: dict[int, tuple[AcknowledgementType | None, int]] = {}
        self.may_be_done: set[int] = set()
        """Records whose final state was written, whether that was confirmed or not."""
        for _ in range(8):
            self.append(rng.choice((0, 0, 0, 2)), rng.randint(1, 6), rng.random() < 0.2)

    def step(self) -> None:
        """Let one thing happen."""
        rng, member = self.rng, self.rng.choice(MEMBERS)
        kind = rng.choice(STEPS)
        match kind:
            case "append":
                self.append(rng.choice((0, 0, 0, 2)), rng.randint(1, 6), rng.random() < 0.2)
            case "acquire":
                self.acquire(member, rng.randint(1, 12), rng.randint(0, 8), rng.random() < 0.5)
            case "acknowledge":
                self.acknowledge(member, rng)
            case "steal":
                self.acknowledge_what_another_has(member, rng.choice(MEMBERS), rng)
            case "wait":
                self.time_passes(rng.choice((1.0, 4.0, 11.0)))
            case "write" if self.under_way is None:
                self.write(rng.choice(("stored", "stored", "stored", "lost", "unknown")))
            case "write":
                self.end_of_write()
            case _:
                RARE[kind](self, member)
        self.start_rises_over_what_is_done()

    def append(self, gap: int, count: int, is_passed_over: bool) -> None:
        start = self.end + gap
        self.end = start + count
        self.log.append(LogBatch(start, self.end, is_passed_over))

    def acquire(self, member: str, records_max: int, batch_size: int, is_strict: bool) -> None:
        self.state.move_log_start(self.log_start)
        offset = self.state.next_fetch_offset()
        if offset is None:
            return
        batches = [batch for batch in self.log if batch.end > offset]
        acquired = self.state.acquire(
            member, offset, batches, records_max, self.now, batch_size=batch_size, is_strict=is_strict
        )
        sizes = [one.end - one.start for one in acquired]
        largest = max((batch.end - batch.start for batch in self.log), default=0)
        assert not is_strict or sum(sizes) <= records_max
        assert sum(sizes) < records_max + largest, "one batch may exceed the number that was asked for"
        assert all(size <= max(batch_size, largest, LIMIT) for size in sizes)
        readable = self.readable()
        for start, end, count in acquired:
            for offset in range(start, end):
                assert offset in readable, "the record is in the log, and is not passed over"
                known = self.known.setdefault(offset, Known())
                assert not known.holder, "no record is acquired by two members at once"
                assert not known.is_confirmed, "no record is delivered after it was acknowledged"
                assert offset not in self.waiting
                assert offset not in (self.under_way or {})
                assert known.deliveries + 1 == count, "deliveries are counted"
                assert count <= LIMIT
                known.holder, known.deliveries, known.deadline = member, count, self.now + LOCK_S

    def readable(self) -> set[int]:
        return {
            offset
            for batch in self.log
            if not batch.is_passed_over
            for offset in range(max(batch.start, self.log_start), batch.end)
        }

    def held(self, member: str) -> list[int]:
        taken = {**self.waiting, **(self.under_way or {})}
        return sorted(one for one, known in self.known.items() if known.holder == member and one not in taken)

    def acknowledge(self, member: str, rng: Random) -> None:
        self.state.move_log_start(self.log_start)
        held = [one for one in self.held(member) if one >= self.state.start_offset]
        if not held:
            return
        start = rng.choice(held)
        end = start + 1
        while end in held and rng.random() < 0.6:
            end += 1
        types = [1, 1, 1, 2, 3, 0, 4]
        is_single = rng.random() < 0.5
        said = (rng.choice(types),) if is_single else tuple(rng.choice(types) for _ in range(start, end))
        self.state.acknowledge(member, [AcknowledgementBatch(start, end, said)], self.now)
        for offset in range(start, end):
            kind = AcknowledgementType(said[0] if is_single else said[offset - start])
            if kind is AcknowledgementType.RENEW:
                self.known[offset].deadline = self.now + LOCK_S
            else:
                self.waiting[offset] = kind, self.known[offset].deliveries

    def acknowledge_all(self, member: str, kind: int) -> None:
        self.state.move_log_start(self.log_start)
        for offset in self.held(member):
            if offset >= self.state.start_offset:
                self.state.acknowledge(member, [AcknowledgementBatch(offset, offset + 1, (kind,))], self.now)
                self.waiting[offset] = AcknowledgementType(kind), self.known[offset].deliveries

    def acknowledge_what_another_has(self, member: str, other: str, rng: Random) -> None:
        held = [one for one in self.held(other) if one >= max(self.state.start_offset, self.log_start)]
        if member == other or not held:
            return
        offset = rng.choice(held)
        try:
            self.state.acknowledge(member, [AcknowledgementBatch(offset, offset + 1, (1,))], self.now)
        except Refused:
            return
        raise AssertionError("a member acknowledged what another has acquired")

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.state.expire(self.now)
        taken = {**self.waiting, **(self.under_way or {})}
        for offset, known in self.known.items():
            if known.holder and known.deadline <= self.now and offset not in taken:
                self.waiting[offset] = AcknowledgementType.RELEASE, known.deliveries
        self.forget_deleted()

    def leave(self, member: str) -> None:
        held = self.held(member)
        self.state.release_member(member)
        for offset in held:
            self.waiting[offset] = AcknowledgementType.RELEASE, self.known[offset].deliveries
        self.forget_deleted()

    def write(self, outcome: str) -> None:
        write = self.state.begin_write(self.rng.choice((500, 1, 2)))
        self.under_way, self.waiting = self.waiting, {}
        if write is not None:
            done = sum(run.count for run in self.state.runs if _is_done_after_write(run))
            assert write.delivery_complete_count == done - (write.start_offset - self.state.start_offset)
            written = {one for run in self.state.runs if run.is_in_write for one in range(run.start, run.end)}
            self.waiting = {one: said for one, said in self.under_way.items() if one not in written}
            self.under_way = {one: said for one, said in self.under_way.items() if one in written}
            assert self.state.must_write or not self.waiting, "what is not in this write is in the next one"
        self.outcome, self.pending = outcome, write
        self.may_be_done |= {one for one, (kind, count) in self.under_way.items() if _is_final(kind, count)}

    def end_of_write(self) -> None:
        assert self.under_way is not None
        under_way, self.under_way = self.under_way, None
        if self.pending is None:
            assert not any(offset >= self.state.start_offset for offset in under_way)
            return
        if self.outcome != "lost":
            self.stored = self.stored.written(0, 0, *self.pending[:2], self.pending.delivery_complete_count)
        if self.outcome == "stored":
            self.state.committed()
            for offset, (kind, deliveries) in under_way.items():
                self.settle(self.known[offset], kind, deliveries)
        else:
            self.state.failed()
        self.forget_deleted()

    def settle(self, known: Known, kind: AcknowledgementType | None, deliveries: int) -> None:
        known.holder, known.deliveries = "", deliveries
        known.is_confirmed |= _is_final(kind, deliveries)
        if kind is not None:
            known.said.append(kind)

    def delete_records(self, rng: Random) -> None:
        self.log_start = rng.randint(self.log_start, self.end)
        self.state.move_log_start(self.log_start)
        self.forget_deleted()

    def forget_deleted(self) -> None:
        for offset in list(self.known):
            if offset < self.log_start:
                del self.known[offset]
                self.waiting.pop(offset, None)
                (self.under_way or {}).pop(offset, None)

    def archive_dead_letters(self) -> None:
        for run in self.state.archiving():
            assert self.rules.has_dead_letters
            self.state.archived(run.start, run.end)

    def fail_over(self) -> None:
        """Another leader reads what is stored. Members' locks are gone, and counts are as they were last stored."""
        under_way, self.under_way, self.waiting = self.under_way, None, {}
        if under_way is not None and self.pending is not None and self.outcome == "unknown":
            self.stored = self.stored.written(0, 0, *self.pending[:2], self.pending.delivery_complete_count)
        self.state = SharePartition(self.stored.start_offset, self.stored.batches, self.rules)
        self.state.move_log_start(self.log_start)
        stored = {offset: batch for batch in self.stored.batches for offset in range(batch.start, batch.end)}
        for offset, known in self.known.items():
            batch = stored.get(offset)
            known.holder = ""
            known.deliveries = 0 if batch is None else batch.delivery_count
            if offset < self.stored.start_offset or (batch is not None and batch.state is not RecordState.AVAILABLE):
                assert known.is_confirmed or offset in self.may_be_done, "only what a member is done with"
                known.is_confirmed = True
            else:
                assert not known.is_confirmed, "what was confirmed is stored"
        for offset in self.readable():
            assert offset >= self.stored.start_offset or offset in self.known, "what was never delivered is not skipped"
        self.last_start = min(self.last_start, self.state.start_offset)

    def start_rises_over_what_is_done(self) -> None:
        start = self.state.start_offset
        assert start >= self.last_start
        self.last_start = start
        for offset in self.readable():
            if offset < start:
                assert self.known[offset].is_confirmed, "no record is skipped"
        runs = self.state.runs
        assert all(one.end == other.start for one, other in pairwise(runs))
        assert not runs or (runs[0].start, runs[-1].end) == (start, self.state.end_offset)
        assert all(run.count > 0 for run in runs)

    def finish(self) -> None:
        """Everything is delivered and acknowledged in the end."""
        if self.under_way is not None:
            self.outcome = "stored"
            self.end_of_write()
        for _ in range(1000):
            self.time_passes(LOCK_S + 1)
            self.archive_dead_letters()
            self.outcome = "stored"
            self.write("stored")
            self.end_of_write()
            self.acquire("a", 100, 10, False)
            held = [one for one in self.held("a") if one >= self.state.start_offset]
            for offset in held:
                self.state.acknowledge("a", [AcknowledgementBatch(offset, offset + 1, (1,))], self.now)
                self.waiting[offset] = AcknowledgementType.ACCEPT, self.known[offset].deliveries
            if self.state.start_offset >= self.end and not held:
                break
        assert self.state.start_offset == max(self.end, self.log_start), "the group is done with everything"
        assert all(run.state in FINAL for run in self.state.runs)


STEPS = (
    ["acquire"] * 4
    + ["acknowledge"] * 3
    + ["write"] * 4
    + ["append", "steal", "wait", "leave", "all", "dead"]
    + ["delete", "fail over"]
)
RARE: dict[str, Callable[[AnySharePartition, str], None]] = {
    "leave": lambda story, member: story.leave(member),
    "all": lambda story, member: story.acknowledge_all(member, story.rng.choice((1, 1, 2, 3))),
    "dead": lambda story, _: story.archive_dead_letters(),
    "delete": lambda story, _: story.delete_records(story.rng) if story.rng.random() < 0.2 else None,
    "fail over": lambda story, _: story.fail_over() if story.rng.random() < 0.4 else None,
}


def _is_done_after_write(run: Run) -> bool:
    return (run.target if run.is_in_write else run.state) in FINAL


def _is_final(kind: AcknowledgementType | None, deliveries: int) -> bool:
    """Return whether a record is done after this acknowledgement, or the end of its lock or session."""
    return kind is not None and (kind is not AcknowledgementType.RELEASE or deliveries >= LIMIT)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_any_story_of_a_share_partition(seed: int) -> None:
    story = AnySharePartition(Random(seed))
    for _ in range(80):
        story.step()
    story.finish()
