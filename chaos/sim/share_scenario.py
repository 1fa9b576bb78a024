"""A random scenario for one share partition: members, leaders and share coordinators come and go, and writes fail.

All is simulated here but the states: `SharePartition` of each leader, and `SharePartitionState` of the share
coordinator. The checkers of histories decide.
"""

import random
from dataclasses import dataclass, field
from itertools import count

from kio.schema.errors import ErrorCode

from cordwood.chaos.checks import check
from cordwood.chaos.history import AckType as Kind
from cordwood.chaos.history import Outcome
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.strict import ScenarioFailed
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.share.share_partition import LogBatch, SharePartition, ShareRules, StateWrite
from cordwood.cluster.share.state import SharePartitionState
from cordwood.cluster.share.states import AcknowledgementBatch

GROUP = 0
STEPS, PEACE_STEPS_MAX = 600, 400
LIMIT, LOCK_S = 5, 2.0
MEMBERS = 3
TICK_S = (0.0, 0.05)
SNAPSHOT_EVERY = 4
NS_PER_S = 1e9


def run_share_scenario(seed: int) -> float:
    """Run faults for a while, then finish all records. No checker of share groups finds anything.

    Returns the simulated seconds. Raises ScenarioFailed with the failure as its cause.
    """
    world = _World(random.Random(f"share partition of {seed}"))
    try:
        for _ in range(STEPS):
            world.step()
        world.finish()
        anomalies = check(world.history.build())
        assert not anomalies, f"{anomalies[0].kind}: {anomalies[0].sentence} {anomalies[0].operations[:3]}"
    except Exception as error:
        raise ScenarioFailed(world.now_s) from error
    return world.now_s


@dataclass(slots=True)
class _Member:
    """A member with its share session. `held` are the ranges that it knows it has acquired."""

    number: int
    session: int
    held: list[tuple[int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"member-{self.number}"


@dataclass(slots=True)
class _Acknowledgement:
    """An acknowledgement that waits for its write."""

    member: _Member
    session: int
    begin: int
    end: int
    kind: Kind
    invoked_ns: int


@dataclass(slots=True)
class _Write:
    """A write on its way from a leader to the share coordinator."""

    leader_epoch: int
    content: StateWrite
    sent: list[_Acknowledgement]
    is_awaited: bool = True
    """Whether its leader, which may be deposed by now, still answers the members."""


class _World:
    """One share partition, its log, its leader, its share coordinator and the members."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.now_s = rng, 0.0
        self.history = HistoryBuilder()
        self._has_dead_letters = rng.random() < 0.5
        self.history.share_group(GROUP, LIMIT, has_dead_letters=self._has_dead_letters)
        self._rules = ShareRules(LIMIT, LOCK_S, rng.choice((20, 200)), self._has_dead_letters)
        self._log: list[LogBatch] = []
        self._sequence = 0
        self._stored = self._snapshot = SharePartitionState().initialized(0, 0, 0)
        self._leader_epoch = 0
        self._leader = SharePartition(0, (), self._rules)
        self._sent: list[_Acknowledgement] = []
        self._write: _Write | None = None
        self._late: list[_Write] = []
        """Writes whose leaders do not wait for them any more. They may still arrive."""
        self._sessions = count(1)
        self._members = [_Member(number, next(self._sessions)) for number in range(MEMBERS)]
        self._append()

    @property
    def _now_ns(self) -> int:
        return int(self.now_s * NS_PER_S)

    def step(self) -> None:
        """Take one random step. Locks that are over are released first."""
        rng = self._rng
        self.now_s += rng.uniform(*TICK_S)
        self._leader.expire(self.now_s)
        usual = (self._append, self._fetch, self._acknowledge, self._begin_write, self._end_write)
        rare = (self._copy_dead_letters, self._end_session, self._wait, self._arrive_late, self._next_leader)
        weights = (2, 6, 6, 6, 6, 2, 0.5, 0.5, 0.5, 0.3, 0.5)
        rng.choices((*usual, *rare, self._next_coordinator), weights)[0]()

    def finish(self) -> None:
        """Let the members accept everything. Raises AssertionError if that does not come to an end."""
        for _ in range(PEACE_STEPS_MAX):
            if self._leader.start_offset >= self._log[-1].end and self._write is None:
                self.history.share_start(GROUP, 0, self._leader.start_offset, self._now_ns)
                stored = self._stored.start_offset
                assert all(batch.is_passed_over for batch in self._log if batch.end > stored), "the end is stored"
                return
            self.now_s += 0.3
            self._leader.expire(self.now_s)
            if self._write is not None:
                self._stored_now(self._write)
            self._begin_write()
            self._copy_dead_letters()
            self._fetch(may_be_lost=False)
            for member in self._members:
                for begin, end in member.held:
                    self._tell(member, begin, end, [Kind.ACCEPT])
                member.held.clear()
        raise AssertionError(f"not finished: {self._leader.runs[:3]} of {self._log[-1].end}, stored {self._stored}")

    def _append(self) -> None:
        """Append a batch to the log: of records, or a control batch. Sometimes offsets before it are gone."""
        rng = self._rng
        start = self._log[-1].end if self._log else 0
        start += rng.choice((0, 0, 0, 2))
        size, is_control = rng.choice((1, 3, 10)), rng.random() < 0.1
        self._log.append(LogBatch(start, start + size, is_control))
        if is_control:
            return
        for offset in range(start, start + size):
            send = self.history.invoke(0, self._sequence, 0, self._now_ns)
            self.history.ok(send, offset, self._now_ns)
            self._sequence += 1

    def _fetch(self, *, may_be_lost: bool = True) -> None:
        rng, member = self._rng, self._rng.choice(self._members)
        start = self._leader.next_fetch_offset()
        if start is None:
            return
        batches = [batch for batch in self._log if batch.end > start][: rng.choice((1, 3, 10))]
        invoked_ns = self._now_ns
        acquired = self._leader.acquire(
            member.name,
            start,
            batches,
            rng.choice((1, 5, 50)),
            self.now_s,
            batch_size=rng.choice((1, 5, 50)),
            is_strict=rng.random() < 0.5,
        )
        self.now_s += 0.001
        times, place = (invoked_ns, self._now_ns), (GROUP, member.number, member.session)
        if may_be_lost and rng.random() < 0.05:
            self.history.acquired(place, 0, (0, 0), 0, times, outcome=Outcome.INFO)
            return
        self._shown(member, (0, 0), 0, times)
        for begin, end, deliveries in acquired:
            member.held.append((begin, end))
            for batch in self._log:
                first, last = max(begin, batch.start), min(end, batch.end)
                if first < last:
                    assert not batch.is_passed_over, f"control records {first} to {last} were delivered"
                    self._shown(member, (first, last), deliveries, times)

    def _shown(self, member: _Member, offsets: tuple[int, int], deliveries: int, times: tuple[int, int]) -> None:
        place = (GROUP, member.number, member.session)
        lock_ms = int(LOCK_S * 1000)
        self.history.acquired(place, 0, offsets, deliveries, times, lock_ms=lock_ms, leader_epoch=self._leader_epoch)

    def _acknowledge(self) -> None:
        rng, member = self._rng, self._rng.choice(self._members)
        if not member.held:
            return
        begin, end = member.held.pop(rng.randrange(len(member.held)))
        cut = rng.randint(begin + 1, end)
        if cut < end:
            member.held.append((cut, end))
        kinds = [*Kind]
        weights = (0, 6, 2, 1, 1)
        sent = rng.choices(kinds, weights, k=cut - begin if rng.random() < 0.5 else 1)
        if Kind.RENEW in sent:
            member.held.append((begin, cut))
            sent = [Kind.RENEW]
        self._tell(member, begin, cut, sent)

    def _tell(self, member: _Member, begin: int, end: int, kinds: list[Kind]) -> None:
        """Acknowledge a range with one type, or with one for each record."""
        invoked_ns = self._now_ns
        self.now_s += 0.001
        by_record = kinds if len(kinds) > 1 else kinds * (end - begin)
        sent = [
            _Acknowledgement(member, member.session, offset, offset + 1, kind, invoked_ns)
            for offset, kind in enumerate(by_record, begin)
        ]
        try:
            types = tuple(map(int, kinds))
            changed = self._leader.acknowledge(member.name, [AcknowledgementBatch(begin, end, types)], self.now_s)
        except Refused as refusal:
            if refusal.code not in (ErrorCode.invalid_record_state, ErrorCode.invalid_request):
                raise
            self._answer(sent, Outcome.FAIL)
        else:
            if changed:
                self._sent += sent
            else:
                self._answer(sent, Outcome.OK)

    def _answer(self, sent: list[_Acknowledgement], outcome: Outcome) -> None:
        for each in sent:
            place = (GROUP, each.member.number, each.session)
            times = (each.invoked_ns, self._now_ns)
            self.history.acknowledged(place, 0, (each.begin, each.end), each.kind, times, outcome)

    def _begin_write(self) -> None:
        if self._write is not None or not (self._leader.must_write or self._sent):
            return
        sent, self._sent = self._sent, []
        content = self._leader.begin_write()
        if content is None:
            self._answer(sent, Outcome.OK)
        else:
            self._write = _Write(self._leader_epoch, content, sent)

    def _end_write(self) -> None:
        """Store the write under way, or lose it, or store it without an answer, or leave it on its way."""
        write, dice = self._write, self._rng.random()
        if write is None:
            return
        if dice < 0.85:
            self._stored_now(write)
            return
        if dice < 0.9:
            self._apply(write)
        elif dice < 0.95:
            write.is_awaited = False
            self._late.append(write)
        self._write = None
        self._leader.failed()
        self._answer(write.sent, Outcome.INFO)

    def _stored_now(self, write: _Write) -> None:
        assert self._apply(write), "the leader has not changed"
        self._write = None
        self._leader.committed()
        self.now_s += 0.001
        self._answer(write.sent, Outcome.OK)

    def _apply(self, write: _Write) -> bool:
        """Bring a write to the share coordinator. Return whether it was accepted."""
        content = write.content
        try:
            self._stored = self._stored.written(
                0, write.leader_epoch, content.start_offset, content.batches, content.delivery_complete_count
            )
        except Refused as refusal:
            if refusal.code is not ErrorCode.fenced_leader_epoch:
                raise
            return False
        if self._stored.updates >= SNAPSHOT_EVERY:
            self._stored = self._snapshot = self._stored.snapshot()
        return True

    def _arrive_late(self) -> None:
        if not self._late:
            return
        write = self._late.pop(0)
        is_accepted = self._apply(write)
        if write.is_awaited:
            self.now_s += 0.001
            self._answer(write.sent, Outcome.OK if is_accepted else Outcome.FAIL)

    def _end_session(self) -> None:
        member = self._rng.choice(self._members)
        self._leader.release_member(member.name)
        assert not self._leader.held_by(member.name), "what the member held is free at once"
        member.session, member.held = next(self._sessions), []

    def _wait(self) -> None:
        self.now_s += self._rng.uniform(0.0, 1.2 * LOCK_S)

    def _next_leader(self) -> None:
        """Elect a leader, which reads what is stored. What the former one has under way may arrive late."""
        if self._write is not None:
            self._late.append(self._write)
            self._write = None
        self._answer(self._sent, Outcome.INFO)
        self._sent = []
        self._leader_epoch += 1
        self.history.elected(0, self._leader_epoch, self._now_ns)
        self.now_s += 0.001
        self._stored = self._stored.read_by(self._leader_epoch)
        self._leader = SharePartition(self._stored.start_offset, self._stored.batches, self._rules)
        for member in self._members:
            member.session, member.held = next(self._sessions), []

    def _next_coordinator(self) -> None:
        """Read the stored state as another share coordinator does: the last snapshot, and the last update."""
        leader_epoch, restored = self._stored.leader_epoch, self._snapshot.restored(self._stored)
        same = restored.start_offset == self._stored.start_offset and restored.batches == self._stored.batches
        assert same, f"{restored} was restored from {self._stored}"
        # That a leader has read the state is not stored with every read; its first write is.
        self._stored = restored.read_by(leader_epoch)

    def _copy_dead_letters(self) -> None:
        for run in self._leader.archiving():
            assert self._has_dead_letters, "archiving is for dead letters"
            begin, end = run.start, run.end
            for offset in range(begin, end):
                self.history.dead_letter(GROUP, 0, offset)
            self._leader.archived(begin, end)
