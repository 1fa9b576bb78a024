"""Markers of decided transactions: which are still to be written, and their sender.

A marker is sent to the leader of each partition of the transaction until it is committed there, and to the new leader
after a change. The partitions of a deleted topic need none. Markers for one broker share requests.
"""

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.image import NO_LEADER
from cordwood.cluster.transactions.transaction import AddedPartition
from cordwood.replication.tasks import Tasks, report
from cordwood.storage.types import ProducerIdAndEpoch

PARTITIONS_PER_REQUEST_MAX = 1000
IN_FLIGHT_MAX = 4
"""Requests to one broker at a time: the markers that arrive meanwhile share the next one.

A request is answered when all of its markers are committed. So a slow partition delays others, but not all at once.
"""

RETRY_S, RETRY_MAX_S = 0.02, 1.0
"""Backoff after markers that were refused: twice as long each time, until none is left over."""

_BY_NAME = operator.attrgetter("topic", "partition")
_events = structlog.get_logger("transactions")


class Marker(NamedTuple):
    """The decision that a marker records."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    is_v2: bool
    coordinator_epoch: int


class Decided:
    """A decided transaction, and its partitions without an acknowledged marker.

    `completed` is called once, when none is left. `owner` is the shard that coordinates the transaction.
    """

    __slots__ = ("completed", "marker", "missing", "owner")

    def __init__(
        self, owner: object, marker: Marker, partitions: Iterable[AddedPartition], completed: Callable[[], None]
    ) -> None:
        self.owner, self.marker, self.completed = owner, marker, completed
        self.missing = set(partitions)


class MarkerRow(NamedTuple):
    """Markers of one transaction in a request."""

    decision: Decided
    partitions: list[AddedPartition]


class Batch:
    """Markers in a request to one broker."""

    __slots__ = ("broker", "rows")

    def __init__(self, broker: int, rows: list[MarkerRow]) -> None:
        self.broker, self.rows = broker, rows


Codes = Sequence[dict[AddedPartition, ErrorCode]]
"""A broker's answer: for each row of the request, the error code of each partition."""

LeaderOf = Callable[[AddedPartition], int | None]
"""Returns the broker that leads a partition; NO_LEADER if there is none now, None if the topic is deleted."""


class Unacknowledged(Exception):
    """A request to which there is no answer: its markers may have been written or not."""


class MarkerQueue:
    """Markers that are still to be written, by their partition's leader. Pure."""

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._decisions: set[Decided] = set()
        self._unsent: dict[int, dict[Decided, list[AddedPartition]]] = {}
        self._parked: list[MarkerRow] = []
        """Markers without a leader, and those that were refused, until `unpark`."""
        self._in_flight: dict[int, list[Batch]] = {}

    def __len__(self) -> int:
        """Return the number of decided transactions with missing markers."""
        return len(self._decisions)

    def decisions(self) -> list[Decided]:
        """Return the decided transactions with missing markers."""
        return list(self._decisions)

    @property
    def has_parked(self) -> bool:
        return bool(self._parked)

    def add(self, decision: Decided) -> list[Decided]:
        """Queue all markers of a decision. Return it if there is nothing to write."""
        self._decisions.add(decision)
        # In an order that does not depend on hashes, so that a simulated run can be repeated.
        self._route(decision, sorted(decision.missing, key=_BY_NAME))
        return self._completed([decision])

    def cancel(self, owner: object) -> None:
        """Forget the decisions of an owner. Answers to markers in flight change nothing."""
        for decision in [decision for decision in self._decisions if decision.owner is owner]:
            self._decisions.discard(decision)
            decision.missing.clear()

    def ready(self) -> list[int]:
        """Return the brokers that may get a request now."""
        return [broker for broker in self._unsent if len(self._in_flight.get(broker, ())) < IN_FLIGHT_MAX]

    def take(self, broker: int) -> Batch | None:
        """Take the next request to a broker, whose markers are then in flight. None if there is nothing for it."""
        rows: list[MarkerRow] = []
        room = PARTITIONS_PER_REQUEST_MAX
        unsent = self._unsent.get(broker, {})
        while unsent and room > 0:
            decision = next(iter(unsent))
            partitions = [partition for partition in unsent.pop(decision) if partition in decision.missing]
            if len(partitions) > room:
                unsent[decision] = partitions[room:]
                partitions = partitions[:room]
            if partitions:
                rows.append(MarkerRow(decision, partitions))
                room -= len(partitions)
        if not unsent:
            self._unsent.pop(broker, None)
        if not rows:
            return None
        batch = Batch(broker, rows)
        self._in_flight.setdefault(broker, []).append(batch)
        return batch

    def answered(self, batch: Batch, codes: Codes | None) -> list[Decided]:
        """Note the answer to a request, None for none. Return the decisions that are complete with it."""
        in_flight = self._in_flight[batch.broker]
        in_flight.remove(batch)
        if not in_flight:
            del self._in_flight[batch.broker]
        touched = []
        for number, (decision, partitions) in enumerate(batch.rows):
            row_codes = codes[number] if codes is not None else {}
            # Partitions that moved meanwhile are no longer in the row: the marker that their new leaders get must not
            # arrive in the producer's next transaction, so that this one waits for their answers.
            decision.missing.difference_update(
                partition for partition in partitions if is_acknowledged(row_codes.get(partition))
            )
            refused = [partition for partition in partitions if partition in decision.missing]
            if refused:
                self._parked.append(MarkerRow(decision, refused))
            touched.append(decision)
        return self._completed(touched)

    def unpark(self) -> list[Decided]:
        """Queue the parked markers again. Return the decisions that are complete because their topics are deleted."""
        parked, self._parked = self._parked, []
        for decision, partitions in parked:
            self._route(decision, [partition for partition in partitions if partition in decision.missing])
        return self._completed(decision for decision, _ in parked)

    def leaders_changed(self) -> list[Decided]:
        """Queue markers again that were queued for, or sent to, a broker that does not lead the partition any more."""
        touched: list[Decided] = []
        for broker, unsent in list(self._unsent.items()):
            for decision, partitions in list(unsent.items()):
                moved = [partition for partition in partitions if self._leader_of(partition) != broker]
                if moved:
                    _keep(partitions, moved)
                    self._route(decision, moved)
                    touched.append(decision)
        for broker, batches in self._in_flight.items():
            for decision, partitions in (row for batch in batches for row in batch.rows):
                moved = [partition for partition in partitions if self._leader_of(partition) != broker]
                if moved:
                    _keep(partitions, moved)
                    self._route(decision, [partition for partition in moved if partition in decision.missing])
                    touched.append(decision)
        return [*self._completed(touched), *self.unpark()]

    def _route(self, decision: Decided, partitions: Iterable[AddedPartition]) -> None:
        parked = []
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                decision.missing.discard(partition)
            elif leader == NO_LEADER:
                parked.append(partition)
            else:
                self._unsent.setdefault(leader, {}).setdefault(decision, []).append(partition)
        if parked:
            self._parked.append(MarkerRow(decision, parked))

    def _completed(self, decisions: Iterable[Decided]) -> list[Decided]:
        """Remove and return the decisions whose markers are all committed, and that are not cancelled."""
        completed = []
        for decision in decisions:
            if not decision.missing and decision in self._decisions:
                self._decisions.discard(decision)
                completed.append(decision)
        return completed


class MarkerSender:
    """The sender of the markers in a queue: a few requests at a time to each broker, repeated with backoff."""

    def __init__(
        self, leader_of: LeaderOf, send: Callable[[int, Sequence[MarkerRow]], Awaitable[Codes]], tasks: Tasks
    ) -> None:
        """`send` writes markers by a request to a broker, and raises Unacknowledged."""
        self.queue = MarkerQueue(leader_of)
        self._send, self._tasks = send, tasks
        self._loop = asyncio.get_running_loop()
        self._starting: set[int] = set()
        """Brokers whose next request begins in the next event-loop iteration."""
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_S

    def write(self, decision: Decided) -> None:
        """Write the markers of a decision. Those of one event-loop iteration share requests."""
        self._complete(self.queue.add(decision))
        self._flush()

    def cancel(self, owner: object) -> None:
        """Forget the decisions of a former coordinator."""
        self.queue.cancel(owner)

    def leaders_changed(self) -> None:
        """Send markers of partitions that moved to their new leaders."""
        self._complete(self.queue.leaders_changed())
        self._flush()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def _flush(self) -> None:
        for broker in self.queue.ready():
            if broker not in self._starting:
                self._starting.add(broker)
                self._tasks.spawn(self._write(broker), "transaction markers")
        if not self.queue.has_parked:
            self._retry_s = RETRY_S
        elif self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._retry_parked)
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    async def _write(self, broker: int) -> None:
        self._starting.discard(broker)
        batch = self.queue.take(broker)
        if batch is None:
            return
        codes: Codes | None = None
        try:
            codes = await self._send(
                batch.broker, [MarkerRow(row.decision, list(row.partitions)) for row in batch.rows]
            )
        except Unacknowledged as error:
            _events.warning("transactions.markers_unacknowledged", broker=batch.broker, error=str(error))
        except Exception as error:
            report("the markers of transactions are written again after a failure", error)
        self._complete(self.queue.answered(batch, codes))
        self._flush()

    def _retry_parked(self) -> None:
        self._retry = None
        self._complete(self.queue.unpark())
        self._flush()

    def _complete(self, decisions: Iterable[Decided]) -> None:
        for decision in decisions:
            decision.completed()


def is_acknowledged(code: ErrorCode | None) -> bool:
    """Return True if a partition does not need this marker any more. None stands for no answer.

    With INVALID_PRODUCER_EPOCH it has a newer epoch of the producer, which begins only after all markers of this
    transaction; so another coordinator, or an operator, has ended it there.
    """
    return code in (ErrorCode.none, ErrorCode.invalid_producer_epoch)


def _keep(partitions: list[AddedPartition], moved: Iterable[AddedPartition]) -> None:
    gone = frozenset(moved)
    partitions[:] = [partition for partition in partitions if partition not in gone]
