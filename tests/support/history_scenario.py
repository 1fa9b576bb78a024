"""Histories for the checkers, written in letters: "ab.d" is the records a, b and d with one unread offset before d."""

from collections.abc import Callable, Iterator

from cordwood.chaos.checks import Anomaly, check, count_by_kind
from cordwood.chaos.checks.unavailable import number_of
from cordwood.chaos.history import ACKS_ALL, UNKNOWN, AckType, Outcome, value_of
from cordwood.chaos.history_builder import HistoryBuilder

NOBODYS = "?"
"""A record that no producer sent."""
CONTROL = "!"
GAP = "."


class HistoryScenario:
    """A history built one client operation at a time."""

    def __init__(self) -> None:
        self._leaders_end = UNKNOWN
        self._builder = HistoryBuilder(lambda _partition: self._leaders_end)
        self._values: dict[str, int] = {}
        self._sequences: dict[int, int] = {}
        self._generation = 1
        self._now_ns = 0
        self._timestamp = UNKNOWN
        self._sessions: dict[int, int] = {}
        self._transaction = UNKNOWN

    def acknowledged(
        self, letters: str, at: int | None = 0, *, producer: int = 1, partition: int = 0, acks: int = ACKS_ALL
    ) -> "HistoryScenario":
        """Add acknowledged sends from offset `at` on; with None the acknowledgements have no offsets."""
        for letter, offset in _placed(letters, 0 if at is None else at):
            send = self._invoke(letter, producer, partition, acks)
            self._builder.ok(send, UNKNOWN if at is None else offset, self._tick())
        return self

    def refused(self, letters: str, *, producer: int = 1, partition: int = 0) -> "HistoryScenario":
        for letter in letters:
            self._builder.fail(self._invoke(letter, producer, partition, ACKS_ALL), self._tick())
        return self

    def unanswered(self, letters: str, *, producer: int = 1, partition: int = 0) -> "HistoryScenario":
        """Add sends without an answer: the producer gave up the first, and the run ended before the others' answers."""
        sends = [self._invoke(letter, producer, partition, ACKS_ALL) for letter in letters]
        self._builder.info(sends[0], self._tick())
        return self

    def session(
        self, transactional_id: int = 1, *, timeout_ms: int = 1000, is_answered: bool = True
    ) -> "HistoryScenario":
        """Begin a session of a transactional id."""
        session = self._builder.session(transactional_id, timeout_ms, self._tick())
        self._sessions.setdefault(transactional_id, session)
        if is_answered:
            self._builder.session_began(session, self._tick())
        return self

    def transaction(
        self,
        letters: str = "",
        at: int = 0,
        *,
        transactional_id: int = 1,
        partition: int = 0,
        further: str = "",
        read_early: str = "",
        consumed: tuple[int, int, int] | None = None,
        commits: bool | None = True,
        outcome: Outcome = Outcome.OK,
    ) -> "HistoryScenario":
        """Add a transaction of the id's first session: acknowledged sends, and `further` ones to the next partition.

        `consumed` is a partition and its range. `read_early` are records that consumer 1 polls before EndTxn, which
        commits, aborts, or with None is not sent.
        """
        if transactional_id not in self._sessions:
            self.session(transactional_id)
        transaction = self._transaction = self._builder.begin_transaction(
            self._sessions[transactional_id], self._tick()
        )
        for where, records in ((partition, letters), (partition + 1, further)):
            for letter, offset in _placed(records, at):
                send = self._invoke(letter, transactional_id, where, ACKS_ALL, transaction)
                self._builder.ok(send, offset, self._tick())
        if consumed is not None:
            self._builder.send_offset(transaction, 1, *consumed)
        self.polled(read_early, at, partition=partition)
        return self if commits is None else self.ended(commits=commits, outcome=outcome)

    def ended(self, *, commits: bool = True, outcome: Outcome = Outcome.OK) -> "HistoryScenario":
        """End the last transaction, which `transaction` has left open."""
        self._builder.end_transaction(self._transaction, self._tick(), is_commit=commits)
        self._builder.transaction_ended(self._transaction, self._tick(), outcome)
        return self

    def read_committed(self, consumer: int = 1) -> "HistoryScenario":
        """Give a consumer the isolation level read_committed."""
        self._builder.reads_committed(consumer)
        return self

    def found_offset(self, offset: int, *, partition: int = 0) -> "HistoryScenario":
        """Add a fetch of the transactional group's committed offset."""
        self._builder.read_offset(1, partition, offset, self._tick(), self._tick())
        return self

    def stamped(self, timestamp: int) -> "HistoryScenario":
        """Give the following sends this timestamp."""
        self._timestamp = timestamp
        return self

    def _invoke(self, letter: str, producer: int, partition: int, acks: int, transaction: int = UNKNOWN) -> int:
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 1
        self._values[letter] = value_of(producer, sequence)
        return self._builder.invoke(
            producer, sequence, partition, self._tick(), acks, self._timestamp, ord(letter), transaction
        )

    def polled(
        self, letters: str, at: int = 0, *, consumer: int = 1, partition: int = 0, content: int = UNKNOWN
    ) -> "HistoryScenario":
        """Add polled records. `content` is their content beside the values, if it differs from the sent content."""
        for letter, offset in _placed(letters, at):
            reported = ord(letter) if content == UNKNOWN else content
            self._builder.poll(consumer, partition, offset, self._value(letter), self._tick(), 0, reported)
        return self

    def assigned(self, consumer: int = 1, partition: int = 0) -> "HistoryScenario":
        self._builder.assign(consumer, partition, self._tick())
        return self

    def watermark(
        self, *ends: int, log_start: int = 0, client: int = 1, partition: int = 0, epoch: int = UNKNOWN, **reported: int
    ) -> "HistoryScenario":
        """Add reads of the high watermark, answered by a leader of `epoch` if given; `reported` has more columns."""
        for end in ends:
            asked_ns = self._tick()
            self._builder.watermark(
                client,
                partition,
                end,
                log_start,
                self._tick(),
                **{"invoked_ns": asked_ns, "leader_epoch": epoch, **reported},
            )
        return self

    def led_to(self, end: int) -> "HistoryScenario":
        """Set the highest high watermark of any leader."""
        self._leaders_end = end
        return self

    def elected(self, *epochs: int, partition: int = 0) -> "HistoryScenario":
        for epoch in epochs:
            self._builder.elected(partition, epoch, self._tick())
        return self

    def read_batch(self, base: int, end: int, *, epoch: int, partition: int = 0) -> "HistoryScenario":
        self._builder.batch(partition, base, end, epoch, self._tick())
        return self

    def reported_end(self, wanted: int, *answer: int, epoch: int, partition: int = 0) -> "HistoryScenario":
        """Add an OffsetForLeaderEpoch answer of a leader in `epoch`: for the epoch `wanted`, an epoch and its end."""
        reported, end = answer
        self._builder.epoch_end(1, partition, wanted, (reported, end), (self._tick(), self._tick()), epoch)
        return self

    def looked_up(self, wanted: int, *answer: int, epoch: int = 0, partition: int = 0) -> "HistoryScenario":
        """Add a ListOffsets lookup by timestamp: `answer` is an offset and a timestamp, or empty."""
        offset, timestamp = answer or (UNKNOWN, UNKNOWN)
        self._builder.looked_up(1, partition, wanted, (offset, timestamp), (self._tick(), self._tick()), epoch)
        return self

    def deleted(self, before: int, *, partition: int = 0) -> "HistoryScenario":
        """Add a DeleteRecords below `before`."""
        deletion = self._builder.delete(partition, self._tick(), before=before)
        self._builder.deleted(deletion, self._tick())
        return self

    def retained(self, partition: int = 0, **limit: int) -> "HistoryScenario":
        """Set retention by `age_ms` or `keep_records`."""
        self._builder.deleted(self._builder.delete(partition, self._tick(), **limit), self._tick())
        return self

    def struck(self, fault: str, seconds: float = 0, *, is_alone: bool = True) -> "HistoryScenario":
        """Add a fault that starts now and lasts `seconds`."""
        since_ns = self._tick()
        until_ns = since_ns + int(seconds * 1e9)
        self._builder.fault(number_of(fault), since_ns, until_ns, is_alone=is_alone)
        return self

    def answered(self, letter: str, at: int, *, seconds: float) -> "HistoryScenario":
        """Add a record that is sent now and acknowledged `seconds` later."""
        send = self._invoke(letter, 1, 0, ACKS_ALL)
        self._builder.ok(send, at, self._now_ns + int(seconds * 1e9))
        return self

    def after(self, milliseconds: int) -> "HistoryScenario":
        self._now_ns += milliseconds * 1_000_000
        return self

    def replica(
        self, broker: int, letters: str, at: int = 0, *, log_start: int = 0, high_watermark: int | None = None
    ) -> "HistoryScenario":
        """Add a broker's final records of partition 0. All are committed unless `high_watermark` is given."""
        records = [(offset, self._value(letter)) for letter, offset in _placed(letters, at)]
        end = at + len(letters) if high_watermark is None else high_watermark
        self._builder.replica(broker, 0, log_start, end, records)
        return self

    def committed(
        self, *offsets: int, outcome: Outcome = Outcome.OK, generation: int = 1, group: int = 1
    ) -> "HistoryScenario":
        for offset in offsets:
            self._builder.commit(group, generation, 0, offset, outcome)
        return self

    def found_committed(self, offset: int, *, generation: int = 1, group: int = 1) -> "HistoryScenario":
        self._builder.read_commit(group, generation, 0, offset)
        return self

    def share_group(self, limit: int = 5, *, has_dead_letters: bool = False) -> "HistoryScenario":
        """Make group 1 a share group."""
        self._builder.share_group(1, limit, has_dead_letters=has_dead_letters)
        return self

    def acquired(
        self,
        begin: int,
        end: int | None = None,
        *,
        member: int = 1,
        session: int | None = None,
        count: int = 1,
        lock_ms: int = 1000,
        epoch: int = 0,
        meanwhile: "Callable[[HistoryScenario], object] | None" = None,
    ) -> "HistoryScenario":
        """Add a share fetch of a member that acquired one record, or those before `end`.

        `meanwhile` adds what happens between the request and its answer.
        """
        asked_ns = self._tick()
        if meanwhile is not None:
            meanwhile(self)
        self._builder.acquired(
            (1, member, member if session is None else session),
            0,
            (begin, begin + 1 if end is None else end),
            count,
            (asked_ns, self._tick()),
            lock_ms=lock_ms,
            leader_epoch=epoch,
        )
        return self

    def fetched_without_answer(self, times: int = 1, *, member: int = 1) -> "HistoryScenario":
        """Add share fetches that got no answer."""
        for _ in range(times):
            asked_ns = self._tick()
            self._builder.acquired((1, member, member), 0, (0, 0), 0, (asked_ns, self._tick()), outcome=Outcome.INFO)
        return self

    def share(
        self,
        kind: AckType,
        begin: int,
        end: int | None = None,
        *,
        member: int = 1,
        session: int | None = None,
        outcome: Outcome = Outcome.OK,
    ) -> "HistoryScenario":
        """Add an acknowledgement of one record, or of those before `end`, by a member of the share group."""
        asked_ns = self._tick()
        place = (1, member, member if session is None else session)
        offsets = (begin, begin + 1 if end is None else end)
        self._builder.acknowledged(place, 0, offsets, kind, (asked_ns, self._tick()), outcome)
        return self

    def share_start(self, start: int) -> "HistoryScenario":
        """Add an answer with the start offset of the share group."""
        self._builder.share_start(1, 0, start, self._tick())
        return self

    def dead_letter(self, offset: int) -> "HistoryScenario":
        self._builder.dead_letter(1, 0, offset)
        return self

    def owned(
        self, member: int, *, since: int, until: int, partition: int = 0, coordinator: int = 1, group: int = 1
    ) -> "HistoryScenario":
        """Add a time in milliseconds in which a partition was a member's, as a coordinator has confirmed."""
        times = (self._now_ns + since * 1_000_000, self._now_ns + until * 1_000_000)
        self._builder.owned(group, member, partition, 1, times, coordinator)
        return self

    def epochs(self, *epochs: int, member: int = 1) -> "HistoryScenario":
        """Add the epochs that a member of a group got in its answers."""
        for epoch in epochs:
            self._builder.member_epoch(1, member, epoch, (self._tick(), self._tick()))
        return self

    def anomalies(self) -> list[Anomaly]:
        return check(self._builder.build())

    def kinds(self) -> dict[str, int]:
        """Return the number of anomalies of each kind."""
        return count_by_kind(self.anomalies())

    def _value(self, letter: str) -> int:
        return {NOBODYS: value_of(9, 9), CONTROL: -7}.get(letter) or self._values[letter]

    def _tick(self) -> int:
        self._now_ns += 1
        return self._now_ns


def _placed(letters: str, at: int) -> Iterator[tuple[str, int]]:
    return ((letter, offset) for offset, letter in enumerate(letters, at) if letter != GAP)
