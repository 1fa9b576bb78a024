"""Share partition: which records of a partition a share group may get, has locked, and is done with. Pure.

A run of records with one state is one `Run`, so that nothing is done for single records where whole batches are
acquired and acknowledged. The runs cover all offsets from the start offset to the end offset. Before the start offset
everything is done, and after the end offset nothing was acquired yet.

A change that must survive a failover is first the *target* of its runs: `begin_write` collects such changes, and
they count once `committed` confirms that the share coordinator has them. Until then the records stay locked. After
`failed` they are as they were.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.states import (
    FINAL,
    AcknowledgementBatch,
    AcknowledgementType,
    AcquiredBatch,
    RecordState,
    StateBatch,
    append_joined,
)
from cordwood.storage.steps import Steps

NO_MEMBER = ""
WRITE_BATCHES_MAX = 500
"""State batches in one write, which the share coordinator merges in one step of the event loop."""
RUNS_AT_ONCE = 1000
"""Runs that are acquired, released or written in one step of the event loop: some 2 ms."""
IN_FLIGHT_MAX = 20_000
"""The most records from the start offset to the end offset, as many as the largest `share.partition.max.record.locks`.

In the worst case each is its own run. A batch of the log that has more of them is acquired in parts.
"""
COUNT_MAX = 0x7FFF
"""The largest delivery count, an int16."""
UNKNOWN_START = -1
"""Stored start offset after a write that failed."""

_AFTER = {
    AcknowledgementType.GAP: RecordState.ARCHIVED,
    AcknowledgementType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgementType.RELEASE: RecordState.AVAILABLE,
    AcknowledgementType.REJECT: RecordState.ARCHIVING,
}
"""The state of a record after an acknowledgement; ARCHIVING only with a dead-letter queue."""


class ShareRules(NamedTuple):
    """The configs of a group for its share partitions. Times are seconds."""

    delivery_count_limit: int = 5
    lock_s: float = 30.0
    records_max: int = 2000
    """The most records from the start offset to the end offset. A batch may exceed it."""
    has_dead_letters: bool = False


class LogBatch(NamedTuple):
    """A batch of the log: its offsets, half-open, and whether its records are delivered to no one."""

    start: int
    end: int
    is_passed_over: bool = False
    """True for control batches and, with read_committed, for batches of aborted transactions."""


@dataclass(slots=True, eq=False)
class Run:
    """Successive records in one state."""

    start: int
    end: int
    state: RecordState
    delivery_count: int
    member: str = NO_MEMBER
    """The member that has acquired the records."""
    deadline: float = 0.0
    """When the lock of acquired records ends."""
    target: RecordState | None = None
    """The state that is being written; None if nothing is."""
    target_count: int = 0
    is_rejected: bool = False
    """Whether a member has rejected the records. Not stored."""
    is_in_write: bool = False
    """Whether the target is in the write that is under way."""

    @property
    def count(self) -> int:
        return self.end - self.start

    @property
    def final_state(self) -> RecordState:
        """The state once everything is written."""
        return self.state if self.target is None else self.target

    def cut(self, offset: int) -> "Run":
        """Cut the run at an offset within it. Return the rear part."""
        assert self.start < offset < self.end, "a cut within the run"
        rear = Run(
            offset, self.end, self.state, self.delivery_count, self.member, self.deadline, self.target,
            self.target_count, self.is_rejected, self.is_in_write,
        )  # fmt: skip
        self.end = offset
        return rear


class StateWrite(NamedTuple):
    """The changes for the share coordinator: the changed runs at or after the new start offset."""

    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int
    """The records at or after the start offset that are done."""


class WriteOutcome(NamedTuple):
    """The records of one write, by their new states."""

    acknowledged: int = 0
    released: int = 0
    archiving: int = 0
    archived: int = 0
    rejected: int = 0
    """Of the archiving and archived records, those that a member has rejected."""


class SharePartition:
    """The state of one share partition in one leader epoch. `rules` may be replaced at any time.

    Times are seconds of any clock that does not go back.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = (), rules: ShareRules | None = None) -> None:
        """`batches`, in order, are the stored states of records from `start_offset` on."""
        self.rules = rules or ShareRules()
        self.start_offset = self.end_offset = start_offset
        self._runs: list[Run] = []
        self._unwritten: deque[Run] = deque()
        """Runs with a target that is in no write yet; those that a log start offset has passed may be among them."""
        self._in_write: list[Run] = []
        """The runs of the write that is under way, with the same exception."""
        self.is_writing = False
        """Whether a write is under way: there is one at a time."""
        self._stored_start = start_offset
        """Start offset of the last write, or of the stored state."""
        self._is_start_due = False
        """Whether the start offset is to be written, although no record changes."""
        self._done_count = 0
        """The records of all runs that are done."""
        self._first_available = start_offset
        """No run before this offset is available."""
        for batch in batches:
            if batch.start > self.end_offset:
                # Records that were acquired and never acknowledged.
                self._runs.append(Run(self.end_offset, batch.start, RecordState.AVAILABLE, 0))
            self._runs.append(Run(batch.start, batch.end, batch.state, batch.delivery_count))
            self._done_count += batch.end - batch.start if batch.state in FINAL else 0
            self.end_offset = batch.end
        self._tidy(start_offset, self.end_offset)

    @property
    def runs(self) -> Sequence[Run]:
        return self._runs

    @property
    def must_write(self) -> bool:
        """Whether changes wait for a write."""
        return bool(self._unwritten) or self._is_start_due

    def next_fetch_offset(self) -> int | None:
        """Return the first offset that a member may acquire; None if the group has as many records as it may have."""
        for index in range(self._index_of(self._first_available), len(self._runs)):
            run = self._runs[index]
            if run.state is RecordState.AVAILABLE and run.target is None:
                self._first_available = run.start
                return run.start
        self._first_available = self.end_offset
        return self.end_offset if self._has_room() else None

    def next_deadline(self) -> float | None:
        """Return when the next lock ends; None if no record is locked."""
        return min((run.deadline for run in self._locked()), default=None)

    def held_by(self, member: str) -> bool:
        """Return whether a member has acquired any record."""
        return any(run.member == member for run in self._locked())

    def acquired_count(self) -> int:
        """Return the number of records that members have locked."""
        return sum(run.count for run in self._runs if run.state is RecordState.ACQUIRED)

    def acquire(
        self,
        member: str,
        fetched_from: int,
        batches: Sequence[LogBatch],
        records_max: int,
        now: float,
        *,
        batch_size: int = 0,
        is_strict: bool = False,
    ) -> list[AcquiredBatch]:
        """Lock available records of these batches of the log for a member (share rule 1). Return them in ranges.

        `batches` are all batches of the log from the offset `fetched_from` on. At least `records_max` records are
        acquired, up to the end of a batch of the log; with `is_strict` at most so many. No range has more than
        `batch_size` records, unless a batch of the log has. There are at most RUNS_AT_ONCE ranges.
        """
        taken: list[Run] = []
        position, count, seen_until = fetched_from, 0, fetched_from
        for batch in batches:
            if count >= records_max or len(taken) >= RUNS_AT_ONCE:
                break
            seen_until = batch.end
            if batch.start > position:
                self._pass_over(position, batch.start)
            start = max(batch.start, position)
            if batch.is_passed_over:
                self._pass_over(start, batch.end)
            else:
                most = records_max - count if is_strict else batch.end - start
                count += self._acquire(member, start, batch.end, most, now, batch_size, taken)
            if self.end_offset < batch.end:
                break
            position = max(position, batch.end)
        self._tidy(fetched_from, seen_until)
        self._look_at_start()
        return [AcquiredBatch(run.start, run.end, run.delivery_count) for run in taken]

    def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch], now: float) -> int:
        """Acknowledge records that the member has acquired: all of them or none. Return how many must be written.

        They stay locked until that is done (share rule 2). Records before the start offset are done already. Raises
        Refused: INVALID_RECORD_STATE for records that the member has not locked, INVALID_REQUEST for records that were
        never acquired.
        """
        self.check_acknowledgements(member, batches)
        changed = 0
        for batch in batches:
            for start, end, kind in _pieces(batch):
                for run in self._carved(max(start, self.start_offset), end):
                    if kind is AcknowledgementType.RENEW:
                        run.deadline = max(run.deadline, now + self.rules.lock_s)
                    else:
                        run.is_rejected = kind is AcknowledgementType.REJECT
                        self._aim(run, self._after(run, _AFTER[kind]), run.delivery_count)
                        changed += run.count
        return changed

    def check_acknowledgements(self, member: str, batches: Iterable[AcknowledgementBatch]) -> None:
        """Check acknowledgements of a member (share rule 1). Raises Refused as `acknowledge`."""
        for batch in batches:
            self._check_acknowledgement(member, batch)

    def in_parts(self, batches: Iterable[AcknowledgementBatch], most: int) -> Iterator[list[AcknowledgementBatch]]:
        """Yield acknowledgements in lists that concern about `most` runs; a batch that concerns more is divided."""
        part: list[AcknowledgementBatch] = []
        room = most
        for batch in batches:
            for piece, cost in self._divided(batch, most):
                if part and cost > room:
                    yield part
                    part, room = [], most
                part.append(piece)
                room -= cost
        if part:
            yield part

    def _divided(self, batch: AcknowledgementBatch, most: int) -> Iterator[tuple[AcknowledgementBatch, int]]:
        """Yield the pieces of a batch, each with the largest number of runs that it concerns."""
        if len(batch.types) > 1:
            for begin in range(0, len(batch.types), most):
                types = batch.types[begin : begin + most]
                start = batch.start + begin
                yield AcknowledgementBatch(start, start + len(types), types), len(types)
            return
        start = batch.start
        while start < batch.end:
            first = self._index_of(start)
            after = first + most
            end = self._runs[after].start if after < len(self._runs) else batch.end
            end = min(end, batch.end)
            yield AcknowledgementBatch(start, end, batch.types), self._index_of(end - 1) - first + 1
            start = end

    def expire(self, now: float, most: int = RUNS_AT_ONCE) -> int:
        """Release records whose locks have ended (share rule 5), in at most so many runs. Return how many there are.

        A start offset whose write failed is to be written again.
        """
        self._look_at_start()
        return self._release(islice((run for run in self._locked() if run.deadline <= now), most))

    def release_member(self, member: str, most: int = RUNS_AT_ONCE) -> int:
        """Release the records of a member, after the end of its session, in at most so many runs.

        Return how many records there are. As in Kafka this delivery counts: the member may have got the records, and
        they may be why it ended.
        """
        return self._release(islice((run for run in self._locked() if run.member == member), most))

    def archived(self, start: int, end: int) -> int:
        """Archive records that the dead-letter queue has (share rule 7). Return how many there are."""
        changed = 0
        for run in self._carved(max(start, self.start_offset), min(end, self.end_offset)):
            if run.state is RecordState.ARCHIVING and run.target is None:
                self._aim(run, RecordState.ARCHIVED, run.delivery_count)
                changed += run.count
        return changed

    def archiving(self) -> list[Run]:
        """Return the runs that are to be copied to the dead-letter queue."""
        return [run for run in self._runs if run.state is RecordState.ARCHIVING and run.target is None]

    def move_log_start(self, log_start: int) -> None:
        """Drop the records before the log start offset: retention or DeleteRecords has deleted them."""
        if log_start > self.start_offset:
            self._drop_before(log_start)
            self.end_offset = max(self.end_offset, log_start)
            self._tidy(log_start, log_start)
            self._look_at_start()

    def begin_write(self, batches_max: int = WRITE_BATCHES_MAX) -> StateWrite | None:
        """Return changes that wait to be written; None if there are none. Call `committed` or `failed` next.

        If they are more than `batches_max` state batches, the rest is to be written next.
        """
        assert not self.is_writing, "one write at a time"
        written = self._in_write = self._take_unwritten()
        if not written and not self._is_start_due:
            return None
        self.is_writing, self._is_start_due = True, False
        start = self._stored_start = self._start_after_write()
        batches: list[StateBatch] = []
        complete = self._done_count + self.start_offset - start
        for number, run in enumerate(written):
            assert run.target is not None, "a run in a write has a target"
            if run.start >= start:
                if len(batches) >= batches_max:
                    self._withdraw(number)
                    break
                append_joined(batches, StateBatch(run.start, run.end, run.target, run.target_count))
            complete += run.count if run.target in FINAL else 0
        return StateWrite(start, tuple(batches), complete)

    def _take_unwritten(self) -> list[Run]:
        """Return runs that wait to be written, in the order of their offsets."""
        taken: list[Run] = []
        while self._unwritten and len(taken) < RUNS_AT_ONCE:
            run = self._unwritten.popleft()
            if run.end > self.start_offset:
                run.is_in_write = True
                taken.append(run)
        taken.sort(key=_start_of)
        return taken

    def _withdraw(self, number: int) -> None:
        """Leave the runs of this write from this one on to the next write."""
        rest = self._in_write[number:]
        del self._in_write[number:]
        for run in rest:
            run.is_in_write = False
        self._unwritten.extendleft(reversed(rest))

    def _start_after_write(self) -> int:
        """Return the first offset that is not done once the write is stored (share rule 3)."""
        for run in self._runs:
            state = run.target if run.is_in_write else run.state
            if state not in FINAL:
                return run.start
        return self.end_offset

    def committed(self) -> WriteOutcome:
        """Apply the changes of the write, which the share coordinator has stored."""
        counts, rejected = dict.fromkeys(RecordState, 0), 0
        written = self._end_write()
        for run in written:
            assert run.target is not None, "a run in a write has a target"
            if run.is_rejected and run.state is RecordState.ACQUIRED:
                rejected += run.count
            run.state, run.delivery_count = run.target, run.target_count
            run.target, run.member = None, NO_MEMBER
            counts[run.state] += run.count
            if run.state is RecordState.AVAILABLE:
                self._first_available = min(self._first_available, run.start)
        self._done_count += counts[RecordState.ACKNOWLEDGED] + counts[RecordState.ARCHIVED]
        if written:
            self._tidy(written[0].start, written[-1].end)
        self._look_at_start()
        return WriteOutcome(
            counts[RecordState.ACKNOWLEDGED],
            counts[RecordState.AVAILABLE],
            counts[RecordState.ARCHIVING],
            counts[RecordState.ARCHIVED],
            rejected,
        )

    def failed(self) -> None:
        """Withdraw the changes of the write. Locks go on as they were (share rule 2)."""
        self._stored_start = UNKNOWN_START
        for run in self._end_write():
            run.target, run.is_rejected = None, False
            if run.state is RecordState.AVAILABLE:
                self._first_available = min(self._first_available, run.start)

    def _end_write(self) -> list[Run]:
        """End the write. Return its runs in the order of their offsets."""
        assert self.is_writing, "a write is under way"
        self.is_writing = False
        written, self._in_write = [run for run in self._in_write if run.end > self.start_offset], []
        for run in written:
            run.is_in_write = False
        # A run that was cut meanwhile has its rear part at the end.
        written.sort(key=_start_of)
        return written

    def _locked(self) -> Iterator[Run]:
        return (run for run in self._runs if run.state is RecordState.ACQUIRED and run.target is None)

    def _has_room(self) -> bool:
        return self.end_offset - self.start_offset < self.rules.records_max

    def _after(self, run: Run, state: RecordState) -> RecordState:
        """Return the state that released or rejected records take, by the rules of the group (share rule 4)."""
        if state is RecordState.AVAILABLE and run.delivery_count >= self.rules.delivery_count_limit:
            state = RecordState.ARCHIVING
        is_plain = state is RecordState.ARCHIVING and not self.rules.has_dead_letters
        return RecordState.ARCHIVED if is_plain else state

    def _release(self, runs: Iterable[Run]) -> int:
        count = 0
        for run in runs:
            self._aim(run, self._after(run, RecordState.AVAILABLE), run.delivery_count)
            count += run.count
        return count

    def _aim(self, run: Run, state: RecordState, delivery_count: int) -> None:
        run.target, run.target_count = state, delivery_count
        self._unwritten.append(run)

    def _check_acknowledgement(self, member: str, batch: AcknowledgementBatch) -> None:
        if batch.end <= self.start_offset:
            return
        if not self._runs:
            raise Refused(ErrorCode.invalid_record_state, "No record is acquired: the batch is not known.")
        if batch.end > self.end_offset:
            raise Refused(ErrorCode.invalid_request, "The last offset of the batch is past the acquired records.")
        for index in range(self._index_of(max(batch.start, self.start_offset)), len(self._runs)):
            run = self._runs[index]
            if run.start >= batch.end:
                break
            if run.state is not RecordState.ACQUIRED or run.target is not None or run.member != member:
                raise Refused(
                    ErrorCode.invalid_record_state,
                    f"The member has not acquired the records from offset {run.start} to {run.end - 1}.",
                )

    def _acquire(
        self, member: str, start: int, end: int, records_max: int, now: float, batch_size: int, taken: list[Run]
    ) -> int:
        """Acquire available records of one batch of the log, released or new ones. Return how many."""
        deadline, count = now + self.rules.lock_s, 0
        if start < self.end_offset:
            most = RUNS_AT_ONCE - len(taken)
            for run in self._available(max(start, self.start_offset), min(end, self.end_offset), records_max, most):
                if run.delivery_count >= self.rules.delivery_count_limit:
                    # The limit was lowered after the records were released.
                    self._aim(run, self._after(run, RecordState.AVAILABLE), run.delivery_count)
                    continue
                run.state, run.member, run.deadline = RecordState.ACQUIRED, member, deadline
                run.delivery_count = min(run.delivery_count + 1, COUNT_MAX)
                count += run.count
                if _extend(taken, run.start, run.end, run.delivery_count, batch_size):
                    # An empty run, which `_tidy` drops.
                    run.start = run.end
                else:
                    taken.append(run)
        first = self.end_offset
        stop = min(end, first + records_max - count, self.start_offset + IN_FLIGHT_MAX)
        if stop > first and self._has_room():
            self.end_offset = stop
            count += stop - first
            # No run is made for each of many small batches.
            if not _extend(taken, first, stop, 1, batch_size):
                run = Run(first, stop, RecordState.ACQUIRED, 1, member, deadline)
                self._runs.append(run)
                taken.append(run)
        return count

    def _available(self, start: int, end: int, records_max: int, runs_max: int) -> list[Run]:
        """Return available runs from `start` up to `end`, with at most `records_max` records, after cuts at both."""
        found: list[Run] = []
        index = self._index_of(start)
        while start < end and index < len(self._runs):
            known = self._runs[index]
            index += 1
            if known.start >= end or records_max <= 0 or len(found) >= runs_max:
                break
            if known.state is RecordState.AVAILABLE and known.target is None:
                first = max(known.start, start)
                runs = self._carved(first, min(known.end, end, first + records_max))
                records_max -= _size(runs)
                found += runs
        return found

    def _pass_over(self, start: int, end: int) -> None:
        """Archive available records of offsets that the log has not, or that are delivered to no one.

        These runs are not written: the next leader comes to the same result.
        """
        if start < self.end_offset:
            for run in self._carved(max(start, self.start_offset), min(end, self.end_offset)):
                if run.state is RecordState.AVAILABLE and run.target is None:
                    run.state = RecordState.ARCHIVED
                    self._done_count += run.count
        if end > self.end_offset:
            self._runs.append(Run(self.end_offset, end, RecordState.ARCHIVED, 0))
            self._done_count += end - self.end_offset
            self.end_offset = end

    def _carved(self, start: int, end: int) -> list[Run]:
        """Return the runs from `start` up to `end`, both known offsets, after cuts at both."""
        if start >= end:
            return []
        index = self._index_of(start)
        if self._runs[index].start < start:
            self._cut(index, start)
            index += 1
        stop = self._index_of(end - 1)
        if self._runs[stop].end > end:
            self._cut(stop, end)
        return self._runs[index : stop + 1]

    def _cut(self, index: int, offset: int) -> Run:
        rear = self._runs[index].cut(offset)
        self._runs.insert(index + 1, rear)
        if rear.is_in_write:
            self._in_write.append(rear)
        elif rear.target is not None:
            self._unwritten.append(rear)
        return rear

    def _index_of(self, offset: int) -> int:
        """Return the index of the run that contains a known offset."""
        return max(bisect_right(self._runs, offset, key=lambda run: run.start) - 1, 0)

    def _look_at_start(self) -> None:
        """Have the start offset written if it is past the stored one: what was passed over is in no other write."""
        if not self.is_writing:
            self._is_start_due = self.start_offset > self._stored_start

    def _tidy(self, start: int, end: int) -> None:
        """Move the start offset over records that are done, and join neighbours between these two offsets."""
        first, stop = max(self._index_of(start) - 1, 0), self._index_of(end) + 2
        kept: list[Run] = []
        for run in self._runs[first:stop]:
            if run.start == run.end:
                continue
            if kept and _may_join(kept[-1], run):
                kept[-1].end = run.end
                kept[-1].delivery_count = max(kept[-1].delivery_count, run.delivery_count)
            else:
                kept.append(run)
        self._runs[first:stop] = kept
        assert all(one.end == other.start for one, other in pairwise(kept)), "the runs have no gap"
        done_until = self.start_offset
        for run in self._runs:
            if run.state not in FINAL or run.target is not None:
                break
            done_until = run.end
        self._drop_before(done_until)

    def _drop_before(self, offset: int) -> None:
        """Move the start offset to this one."""
        dropped = 0
        for run in self._runs:
            if run.start >= offset:
                break
            if run.state in FINAL:
                self._done_count -= min(run.end, offset) - run.start
            if run.end > offset:
                run.start = offset
                break
            dropped += 1
        del self._runs[:dropped]
        self.start_offset = offset
        self._first_available = max(self._first_available, offset)


def check_batches(batches: Iterable[AcknowledgementBatch], *, may_renew: bool) -> Steps[set[int]]:
    """Check the acknowledgements of one partition, in steps. Return their types.

    Raises Refused: INVALID_RECORD_STATE for records that are acknowledged twice, INVALID_REQUEST otherwise.
    """
    largest = AcknowledgementType.RENEW if may_renew else AcknowledgementType.REJECT
    start = end = 0
    known: set[int] = set()
    for batch in batches:
        if batch.start < start or batch.end <= batch.start:
            raise Refused(ErrorCode.invalid_request, "Acknowledgement batches are not in the order of their offsets.")
        if len(batch.types) not in (1, batch.end - batch.start):
            raise Refused(ErrorCode.invalid_request, "A batch needs one acknowledge type, or one for each record.")
        types = {batch.types[0]} if len(batch.types) == 1 else set(batch.types)
        if not types <= known:
            known |= types
            if not 0 <= min(known) <= max(known) <= largest:
                raise Refused(ErrorCode.invalid_request, "An acknowledge type is not known, or not permitted here.")
        if batch.start < end:
            raise Refused(ErrorCode.invalid_record_state, f"The record at offset {batch.start} is acknowledged twice.")
        start, end = batch.start, batch.end
        yield
    return known


def _pieces(batch: AcknowledgementBatch) -> Iterator[tuple[int, int, AcknowledgementType]]:
    """Yield start, end and type for all successive records with the same type."""
    if len(batch.types) == 1:
        yield batch.start, batch.end, AcknowledgementType(batch.types[0])
        return
    start = batch.start
    for kind, same in groupby(batch.types):
        end = start + sum(1 for _ in same)
        yield start, end, AcknowledgementType(kind)
        start = end


def _extend(taken: Sequence[Run], start: int, end: int, delivery_count: int, batch_size: int) -> bool:
    """Extend the last acquired range by newly acquired records that fit it. Return whether they did."""
    if not taken:
        return False
    last = taken[-1]
    if last.end != start or last.delivery_count != delivery_count or end - last.start > batch_size:
        return False
    last.end = end
    return True


def _may_join(one: Run, other: Run) -> bool:
    if one.state is not other.state or one.target is not None or other.target is not None:
        return False
    if one.state in FINAL:
        return True
    return one.state is RecordState.AVAILABLE and one.delivery_count == other.delivery_count


def _start_of(run: Run) -> int:
    return run.start


def _size(runs: Iterable[Run]) -> int:
    return sum(run.count for run in runs)
