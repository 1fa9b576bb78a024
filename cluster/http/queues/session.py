"""A share session: one member's ShareFetch and ShareAcknowledge requests to one leader, one at a time.

Acknowledgements that arrive while a request is in flight go together in the next one: the leader writes the state of a
partition once for all of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kio.schema.share_fetch.v2.request import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest

from cordwood.cluster.http.queues.deliveries import QueuePartition
from cordwood.cluster.kafka.client_connection import ClientConnection, HungUp
from cordwood.cluster.kafka.wire import Malformed
from cordwood.replication.tasks import Tasks

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgement (KIP-932, KIP-1222)."""
RECORD_LIMIT = 1
"""The acquire mode in which a leader acquires at most the requested number of records (KIP-1206)."""
FETCH_BYTES_MAX = 256 << 10
EPOCH_MAX = (1 << 31) - 1
SILENCE_S = 15.0
"""The time, after a long poll, until a request without a response ends the session."""
ACKS_MAX = 5_000
"""Acknowledgements of one request."""


class SessionOver(Exception):
    """The session has ended: the leader has released its records, or soon does."""

    def __init__(self, sentence: str, code: ErrorCode = ErrorCode.none) -> None:
        super().__init__(sentence)
        self.code = code
        """The leader's error; none if it did not answer."""


class Ack(NamedTuple):
    """The acknowledgement of the offsets from `first` to `last`."""

    place: QueuePartition
    first: int
    last: int
    acknowledge_type: int


class LeaderSession:
    """The session of one member at one leader."""

    def __init__(self, connection: ClientConnection, leader: int, group_id: str, member_id: str) -> None:
        self._connection, self.leader = connection, leader
        self._group_id, self._member_id = group_id, member_id
        self._epoch = 0
        self._known: frozenset[QueuePartition] = frozenset()
        """The partitions that the leader has in the session."""
        self._one_at_a_time = asyncio.Lock()
        self._waiting: list[tuple[Ack, asyncio.Future[ErrorCode]]] = []
        self._tasks = Tasks()
        self._is_sending = False
        self.lock_ms = 0
        """The duration of locks in the newest answer of the leader."""

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def is_new(self) -> bool:
        """Whether the leader has answered no request yet."""
        return self._epoch == 0

    async def fetch(self, places: frozenset[QueuePartition], records_max: int, wait_s: float) -> Any:
        """Acquire records of these partitions. Return the response. Raises SessionOver."""
        async with self._one_at_a_time:
            added, forgotten = places - self._known, self._known - places
            request = ShareFetchRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                share_session_epoch=self._epoch,
                max_wait=timedelta(seconds=wait_s),
                min_bytes=1,
                max_bytes=FETCH_BYTES_MAX,
                max_records=records_max,
                batch_size=records_max,
                share_acquire_mode=RECORD_LIMIT,
                topics=tuple(
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=tuple(
                            FetchPartition(partition_index=index, acknowledgement_batches=()) for index in indexes
                        ),
                    )
                    for topic_id, indexes in _by_topic(added).items()
                ),
                forgotten_topics_data=tuple(
                    ForgottenTopic(topic_id=topic_id, partitions=tuple(indexes))
                    for topic_id, indexes in _by_topic(forgotten).items()
                ),
            )
            response = await self._ask(request, wait_s + SILENCE_S)
            self._known = places
            return response

    async def acknowledge(self, acks: Sequence[Ack]) -> list[ErrorCode]:
        """Acknowledge records. Return the outcome of each; REQUEST_TIMED_OUT if it is unknown."""
        loop = asyncio.get_running_loop()
        outcomes: list[asyncio.Future[ErrorCode]] = [loop.create_future() for _ in acks]
        self._waiting += zip(acks, outcomes, strict=True)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn(self._send_acks(), "acknowledge over HTTP")
        return await asyncio.gather(*outcomes)

    async def close(self) -> None:
        """End the session: the leader releases its records."""
        await self._tasks.close()
        self._connection.close()
        self._fail(ErrorCode.request_timed_out)

    async def _send_acks(self) -> None:
        try:
            while self._waiting:
                async with self._one_at_a_time:
                    some, self._waiting = self._waiting[:ACKS_MAX], self._waiting[ACKS_MAX:]
                    try:
                        await self._settle(some)
                    except SessionOver:
                        self._fail(ErrorCode.invalid_record_state)
                    finally:
                        for _, outcome in some:
                            _complete(outcome, ErrorCode.request_timed_out)
        finally:
            self._is_sending = False

    async def _settle(self, some: Sequence[tuple[Ack, "asyncio.Future[ErrorCode]"]]) -> None:
        """Acknowledge, and find those that a partition refuses: a leader takes all of a partition, or none.

        Raises SessionOver.
        """
        codes = await self._acknowledge([ack for ack, _ in some])
        again: list[list[tuple[Ack, asyncio.Future[ErrorCode]]]] = []
        by_place: defaultdict[QueuePartition, list[tuple[Ack, asyncio.Future[ErrorCode]]]] = defaultdict(list)
        for one in some:
            by_place[one[0].place].append(one)
        for place, of_place in by_place.items():
            code = codes.get(place, ErrorCode.unknown_server_error)
            if code is ErrorCode.invalid_record_state and len(of_place) > 1:
                half = len(of_place) // 2
                again += [of_place[:half], of_place[half:]]
                continue
            for _, outcome in of_place:
                _complete(outcome, code)
        for part in again:
            await self._settle(part)

    async def _acknowledge(self, acks: Iterable[Ack]) -> dict[QueuePartition, ErrorCode]:
        by_topic: defaultdict[UUID, defaultdict[int, list[Ack]]] = defaultdict(lambda: defaultdict(list))
        is_renewal = False
        for ack in acks:
            by_topic[ack.place.topic_id][ack.place.partition].append(ack)
            is_renewal |= ack.acknowledge_type == RENEW
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=is_renewal,
            topics=tuple(
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(of_partition))
                        for index, of_partition in by_index.items()
                    ),
                )
                for topic_id, by_index in by_topic.items()
            ),
        )
        response = await self._ask(request, SILENCE_S)
        return {
            QueuePartition(topic.topic_id, row.partition_index): row.error_code
            for topic in response.responses
            for row in topic.partitions
        }

    async def _ask(self, request: Any, answer_s: float) -> Any:
        """Send the next request of the session. Raises SessionOver."""
        try:
            async with asyncio.timeout(answer_s):
                response = await self._connection.ask(request)
        except (HungUp, Malformed, TimeoutError) as error:
            self._connection.close()
            raise SessionOver(f"broker {self.leader} did not answer: {error}") from error
        except asyncio.CancelledError:
            # A response without a reader would go to the next request.
            self._connection.close()
            raise
        if response.error_code is not ErrorCode.none:
            self._connection.close()
            reason = response.error_message or response.error_code.name.upper()
            raise SessionOver(f"broker {self.leader} ended the session: {reason}", response.error_code)
        self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1
        self.lock_ms = int(response.acquisition_lock_timeout.total_seconds() * 1000) or self.lock_ms
        return response

    def _fail(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for _, outcome in waiting:
            _complete(outcome, code)


def _by_topic(places: Iterable[QueuePartition]) -> dict[UUID, list[int]]:
    indexes: defaultdict[UUID, list[int]] = defaultdict(list)
    for place in sorted(places):
        indexes[place.topic_id].append(place.partition)
    return indexes


def _batches(acks: Iterable[Ack]) -> tuple[AcknowledgementBatch, ...]:
    return tuple(
        AcknowledgementBatch(first_offset=ack.first, last_offset=ack.last, acknowledge_types=(ack.acknowledge_type,))
        for ack in sorted(acks)
    )


def _complete(outcome: "asyncio.Future[ErrorCode]", code: ErrorCode) -> None:
    if not outcome.done():
        outcome.set_result(code)
