"""Histories in letters: "ab.d" are the records a, b and d in a row, with an offset between that is passed over."""

from collections.abc import Iterator

from cordwood.chaos.checks import Anomaly, check, count_by_kind
from cordwood.chaos.checks.unavailable import number_of
from cordwood.chaos.history import ACKS_ALL, UNKNOWN, HistoryBuilder, Outcome, value_of

NOBODYS = "?"
"""A record that no producer sent."""
CONTROL = "!"
GAP = "."


class HistoryScenario:
    """Each verb writes down what one client did or was told, one thing after the other."""

    def __init__(self) -> None:
        self._leaders_end = UNKNOWN
        self._builder = HistoryBuilder(lambda _partition: self._leaders_end)
        self._values: dict[str, int] = {}
        self._sequences: dict[int, int] = {}
        self._generation = 1
        self._now_ns = 0
        self._timestamp = UNKNOWN

    def acknowledged(
        self, letters: str, at: int | None = 0, *, producer: int = 1, partition: int = 0, acks: int = ACKS_ALL
    ) -> "HistoryScenario":
        """A producer sent them, and was told that they are there from `at` on; None where it was not told where."""
        for letter, offset in _placed(letters, 0 if at is None else at):
            send = self._invoke(letter, producer, partition, acks)
            self._builder.ok(send, UNKNOWN if at is None else offset, self._tick())
        return self

    def refused(self, letters: str, *, producer: int = 1, partition: int = 0) -> "HistoryScenario":
        for letter in letters:
            self._builder.fail(self._invoke(letter, producer, partition, ACKS_ALL), self._tick())
        return self

    def unanswered(self, letters: str, *, producer: int = 1, partition: int = 0) -> "HistoryScenario":
        """The producer gave up the first, and the run ended before it knew of the others."""
        sends = [self._invoke(letter, producer, partition, ACKS_ALL) for letter in letters]
        self._builder.info(sends[0], self._tick())
        return self

    def stamped(self, timestamp: int) -> "HistoryScenario":
        """What is sent from now on has this timestamp."""
        self._timestamp = timestamp
        return self

    def _invoke(self, letter: str, producer: int, partition: int, acks: int) -> int:
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 1
        self._values[letter] = value_of(producer, sequence)
        return self._builder.invoke(producer, sequence, partition, self._tick(), acks, self._timestamp, ord(letter))

    def polled(
        self, letters: str, at: int = 0, *, consumer: int = 1, partition: int = 0, content: int = UNKNOWN
    ) -> "HistoryScenario":
        """`content` is what they had beside their values, if that was another than was sent."""
        for letter, offset in _placed(letters, at):
            told = ord(letter) if content == UNKNOWN else content
            self._builder.poll(consumer, partition, offset, self._value(letter), self._tick(), 0, told)
        return self

    def assigned(self, consumer: int = 1, partition: int = 0) -> "HistoryScenario":
        self._builder.assign(consumer, partition, self._tick())
        return self

    def watermark(
        self, *ends: int, log_start: int = 0, client: int = 1, partition: int = 0, epoch: int = UNKNOWN, **told: int
    ) -> "HistoryScenario":
        """A client asks, and is told, by a leader of that epoch if one is given; `told` has more columns."""
        for end in ends:
            asked_ns = self._tick()
            self._builder.watermark(
                client,
                partition,
                end,
                log_start,
                self._tick(),
                **{"invoked_ns": asked_ns, "leader_epoch": epoch, **told},
            )
        return self

    def led_to(self, end: int) -> "HistoryScenario":
        """No leader's high watermark has been above that."""
        self._leaders_end = end
        return self

    def elected(self, *epochs: int, partition: int = 0) -> "HistoryScenario":
        for epoch in epochs:
            self._builder.elected(partition, epoch, self._tick())
        return self

    def read_batch(self, base: int, end: int, *, epoch: int, partition: int = 0) -> "HistoryScenario":
        self._builder.batch(partition, base, end, epoch, self._tick())
        return self

    def told_end(self, wanted: int, *answer: int, epoch: int, partition: int = 0) -> "HistoryScenario":
        """A leader of `epoch` was asked where the epoch `wanted` ended, and told of an epoch and its end."""
        told, end = answer
        self._builder.epoch_end(1, partition, wanted, (told, end), (self._tick(), self._tick()), epoch)
        return self

    def looked_up(self, wanted: int, *answer: int, epoch: int = 0, partition: int = 0) -> "HistoryScenario":
        """A leader was asked for the first record at that time, and named an offset and a timestamp, or nothing."""
        offset, timestamp = answer or (UNKNOWN, UNKNOWN)
        self._builder.looked_up(1, partition, wanted, (offset, timestamp), (self._tick(), self._tick()), epoch)
        return self

    def deleted(self, before: int, *, partition: int = 0) -> "HistoryScenario":
        """An administrator had the records below `before` deleted."""
        deletion = self._builder.delete(partition, self._tick(), before=before)
        self._builder.deleted(deletion, self._tick())
        return self

    def retained(self, partition: int = 0, **limit: int) -> "HistoryScenario":
        """Retention by `age_ms` or `keep_records` is set."""
        self._builder.deleted(self._builder.delete(partition, self._tick(), **limit), self._tick())
        return self

    def struck(self, fault: str, seconds: float = 0, *, is_alone: bool = True) -> "HistoryScenario":
        """A fault strikes, and lasts so long."""
        since_ns = self._tick()
        until_ns = since_ns + int(seconds * 1e9)
        self._builder.fault(number_of(fault), since_ns, until_ns, is_alone=is_alone)
        return self

    def answered(self, letter: str, at: int, *, seconds: float) -> "HistoryScenario":
        """A record is sent now, and acknowledged so much later."""
        send = self._invoke(letter, 1, 0, ACKS_ALL)
        self._builder.ok(send, at, self._now_ns + int(seconds * 1e9))
        return self

    def after(self, milliseconds: int) -> "HistoryScenario":
        self._now_ns += milliseconds * 1_000_000
        return self

    def replica(
        self, broker: int, letters: str, at: int = 0, *, log_start: int = 0, high_watermark: int | None = None
    ) -> "HistoryScenario":
        """What a broker holds of partition 0 at the end. All of it is committed unless something else is said."""
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

    def anomalies(self) -> list[Anomaly]:
        return check(self._builder.build())

    def kinds(self) -> dict[str, int]:
        """How many cases of what."""
        return count_by_kind(self.anomalies())

    def _value(self, letter: str) -> int:
        return {NOBODYS: value_of(9, 9), CONTROL: -7}.get(letter) or self._values[letter]

    def _tick(self) -> int:
        self._now_ns += 1
        return self._now_ns


def _placed(letters: str, at: int) -> Iterator[tuple[str, int]]:
    return ((letter, offset) for offset, letter in enumerate(letters, at) if letter != GAP)
