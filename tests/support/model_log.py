"""A model of a correct replicated log in memory, and the history of its clients: disconnects, retries and failovers."""

import random
from dataclasses import dataclass, field

from cordwood.chaos.history import SEQUENCE_BITS, UNKNOWN, History, Outcome, value_of
from cordwood.chaos.history_builder import HistoryBuilder

PARTITIONS = 3
PRODUCERS = 3
CONSUMERS = 3
BROKERS = (1, 2, 3)
GROUP = 1
CONTROL = -7
POLLED_MAX = 5
DELETED_MAX = 5
OFTEN = 5
"""The weight of ordinary steps against faults."""


@dataclass(slots=True)
class Send:
    """A record in flight. `number` identifies it in the history."""

    number: int
    value: int
    is_awaited: bool = True


@dataclass(slots=True)
class Partition:
    """A partition's `records` by offset, None for a control record. Those past the high watermark may be lost."""

    records: list[Send | None] = field(default_factory=list)
    high_watermark: int = 0
    log_start: int = 0
    waiting: dict[int, list[Send]] = field(default_factory=lambda: {producer: [] for producer in range(PRODUCERS)})
    """By producer, in order: the sends to append, or to append again."""
    strays: list[Send] = field(default_factory=list)
    """Sends that their producers gave up. They may still arrive at any time."""


class ModelLog:
    """A log whose methods are the possible steps, chosen at random. Clients' observations form a history."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._history = HistoryBuilder()
        self._partitions = [Partition() for _ in range(PARTITIONS)]
        self._sequences = [0] * PRODUCERS
        self._positions = {(consumer, partition): 0 for consumer in range(CONSUMERS) for partition in range(PARTITIONS)}
        self._polls = 0
        self._generation = 1
        self._group_offsets = [UNKNOWN] * PARTITIONS
        self._next_commits = [0] * PARTITIONS
        self._late_commits: list[tuple[int, int]] = []
        """Partition and offset of commits that the member gave up, still in flight to its generation's coordinator."""
        self._now_ns = 0

    def run(self, steps: int) -> History:
        """Run `steps` random steps, then commit everything and read all records. Return the history."""
        often = (self.send, self.append, self.replicate, self.poll)
        seldom = (self.give_up, self.refuse, self.fail_over, self.stray, self.mark, self.reassign, self.retain)
        of_groups = (self.commit, self.commit_late, self.rebalance)
        verbs = OFTEN * often + seldom + of_groups
        for _ in range(steps):
            # Two steps may share a timestamp.
            self._now_ns += self._rng.randrange(2)
            self._rng.choice(verbs)(self._rng.randrange(PARTITIONS))
        for number, partition in enumerate(self._partitions):
            self._replicate_to(partition, len(partition.records))
            self._read_to_the_end(number)
            self._read_replicas(number)
        return self._history.build()

    def send(self, number: int) -> None:
        producer = self._rng.randrange(PRODUCERS)
        sequence, self._sequences[producer] = self._sequences[producer], self._sequences[producer] + 1
        send = self._history.invoke(producer, sequence, number, self._now_ns)
        self._partitions[number].waiting[producer].append(Send(send, value_of(producer, sequence)))

    def append(self, number: int) -> None:
        """Append some of one producer's sends, in order."""
        partition = self._partitions[number]
        waiting = partition.waiting[self._rng.randrange(PRODUCERS)]
        arrived = self._rng.randint(0, len(waiting))
        partition.records += waiting[:arrived]
        del waiting[:arrived]

    def mark(self, number: int) -> None:
        """Append a control record, which consumers never receive."""
        self._partitions[number].records.append(None)

    def stray(self, number: int) -> None:
        partition = self._partitions[number]
        if partition.strays:
            partition.records.append(partition.strays.pop(self._rng.randrange(len(partition.strays))))

    def replicate(self, number: int) -> None:
        partition = self._partitions[number]
        self._replicate_to(partition, self._rng.randint(partition.high_watermark, len(partition.records)))

    def _replicate_to(self, partition: Partition, end: int) -> None:
        """Advance the high watermark and answer producers: with an offset, without one, or not at all."""
        for offset in range(partition.high_watermark, end):
            send = partition.records[offset]
            if send is not None and send.is_awaited:
                answer = self._rng.random()
                if answer < 0.8:
                    self._history.ok(send.number, offset, self._now_ns)
                elif answer < 0.9:
                    self._history.ok(send.number, UNKNOWN, self._now_ns)
        partition.high_watermark = end

    def give_up(self, number: int) -> None:
        """Have a producer give up its first send, which may still arrive."""
        partition = self._partitions[number]
        waiting = partition.waiting[self._rng.randrange(PRODUCERS)]
        if waiting:
            send = waiting.pop(0)
            send.is_awaited = False
            self._history.info(send.number, self._now_ns)
            partition.strays.append(send)

    def refuse(self, number: int) -> None:
        waiting = self._partitions[number].waiting[self._rng.randrange(PRODUCERS)]
        if waiting:
            self._history.fail(waiting.pop(0).number, self._now_ns)

    def fail_over(self, number: int) -> None:
        """Elect a leader that has all committed records and some of the others. Lost sends are sent again, in order."""
        partition = self._partitions[number]
        end = self._rng.randint(partition.high_watermark, len(partition.records))
        lost, partition.records = partition.records[end:], partition.records[:end]
        for send in reversed([send for send in lost if send is not None]):
            if send.is_awaited:
                partition.waiting[send.value >> SEQUENCE_BITS].insert(0, send)
            else:
                partition.strays.append(send)

    def poll(self, number: int) -> None:
        self._poll(self._rng.randrange(CONSUMERS), number, self._rng.randint(1, POLLED_MAX))

    def _poll(self, consumer: int, number: int, count: int) -> None:
        partition = self._partitions[number]
        start = max(self._positions[consumer, number], partition.log_start)
        end = min(start + count, partition.high_watermark)
        self._polls += 1
        self._history.watermark(consumer, number, partition.high_watermark, partition.log_start, self._now_ns)
        for offset in range(start, end):
            send = partition.records[offset]
            if send is not None:
                self._history.poll(consumer, number, offset, send.value, self._now_ns, self._polls)
        self._positions[consumer, number] = max(start, end)

    def reassign(self, number: int) -> None:
        consumer = self._rng.randrange(CONSUMERS)
        self._history.assign(consumer, number, self._now_ns)
        self._positions[consumer, number] = self._rng.randint(0, self._partitions[number].high_watermark)

    def retain(self, number: int) -> None:
        """Delete the oldest records."""
        partition = self._partitions[number]
        partition.log_start = min(partition.log_start + self._rng.randrange(DELETED_MAX), partition.high_watermark)
        self._history.delete(number, self._now_ns, before=partition.log_start)

    def commit(self, number: int) -> None:
        """Commit the position of the group's member. A commit without an answer may or may not be applied."""
        offset = max(self._next_commits[number], self._positions[0, number])
        outcome = self._rng.choice(list(Outcome))
        self._history.commit(GROUP, self._generation, number, offset, outcome)
        self._next_commits[number] = offset
        if outcome is Outcome.OK or (outcome is Outcome.INFO and self._rng.random() < 0.3):
            self._group_offsets[number] = offset
        elif outcome is Outcome.INFO:
            self._late_commits.append((number, offset))

    def commit_late(self, _number: int) -> None:
        if self._late_commits:
            number, offset = self._late_commits.pop(self._rng.randrange(len(self._late_commits)))
            self._group_offsets[number] = offset

    def rebalance(self, _number: int) -> None:
        self._generation += 1
        self._late_commits.clear()
        for number, offset in enumerate(self._group_offsets):
            self._history.read_commit(GROUP, self._generation, number, offset)
            self._next_commits[number] = max(offset, 0)

    def _read_to_the_end(self, number: int) -> None:
        self._history.assign(CONSUMERS, number, self._now_ns)
        self._positions[CONSUMERS, number] = 0
        self._poll(CONSUMERS, number, len(self._partitions[number].records))

    def _read_replicas(self, number: int) -> None:
        """Read each broker's replica, with its own log start and high watermark."""
        partition = self._partitions[number]
        values = [CONTROL if send is None else send.value for send in partition.records]
        for broker in BROKERS:
            start = self._rng.randint(0, partition.log_start)
            watermark = self._rng.randint(start, partition.high_watermark)
            self._history.replica(broker, number, start, watermark, list(enumerate(values))[start:])
