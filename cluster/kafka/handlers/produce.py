"""Produce (0): record batches appended to partition logs, acknowledged after a flush, a commit, or not at all (acks).

Version notes: 0 to 2 are advertised and refused; 3 brings transactional ids; 7 batches in zstd (KIP-110); 8 error
messages (KIP-467); 9 is flexible; 10 names the current leader where another broker leads (KIP-951); 11 adds
TRANSACTION_ABORTABLE, and 12 adds its partitions to the transaction (KIP-890); 13 names topics by id (KIP-516).
"""

# On the hot path: a request is handled in the connection's callback. Request and response are read and written by hand,
# because the generic writer takes longer than everything else together for a small batch. Batches of which the records
# take longer to check are checked in a thread, and the connection's next request waits for them.

import asyncio
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import structlog
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka import produce_request
from cordwood.cluster.kafka.answer_queue import Slot
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.codec import RequestHead
from cordwood.cluster.kafka.connection import Connection
from cordwood.cluster.kafka.leader_hints import FindLeader, Leader
from cordwood.cluster.kafka.produce_request import PartitionData, ProduceRequest, read_lone, read_produce
from cordwood.cluster.kafka.produce_response import STEPS_AT_ONCE, PendingProduce, ProduceOutcome
from cordwood.cluster.kafka.refusals import EXPECTED, CodecRefused
from cordwood.cluster.kafka.rights import TOPIC, TRANSACTIONAL_ID, WRITE, Right, Rights
from cordwood.cluster.kafka.transaction_verifier import (
    RETRIED,
    Codes,
    TransactionProtocol,
    TransactionVerifier,
    Verification,
)
from cordwood.cluster.kafka.wire import Malformed, Topic
from cordwood.cluster.proposals.topics import INTERNAL_TOPICS
from cordwood.cluster.resources.decode_queue import DecodeQueue
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.authorizer import Authorizer
from cordwood.replication.replicas import Replicas
from cordwood.replication.tasks import Tasks
from cordwood.replication.verification import VerificationGuard, Verifications
from cordwood.storage.admission import admit_records_in_steps
from cordwood.storage.batch import (
    ATTRIBUTES_BYTE,
    CODEC_MASK,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    check,
    peek,
)
from cordwood.storage.budget import UNPACKED_BYTES_MAX, Budget, OverBudget, UnpacksTooLarge
from cordwood.storage.config import LogConfig
from cordwood.storage.disk import Bytes
from cordwood.storage.errors import CorruptBatch, StaleProducerEpoch
from cordwood.storage.producers import Producers
from cordwood.storage.steps import Steps, some
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

KEY = ApiKey.PRODUCE
RIGHTS: Rights = (Right(WRITE, TOPIC), Right(WRITE, TRANSACTIONAL_ID, "for transactional batches"))
ITEMS_MAX = produce_request.ITEMS_MAX

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
BYTES_PER_STEP = 256 << 10
"""A batch of so many bytes is a step more."""
FEW_PARTITIONS = 32
OUTCOME_BYTES = 400
"""Memory of one batch's outcome and its part of the response."""

ZSTD_FROM = 7
"""From this version on, a batch may be compressed with zstd."""
ZSTD = int(Compression.ZSTD)
ABORTABLE_FROM, ADDS_FROM = 11, 12
"""From these versions on, a client knows TRANSACTION_ABORTABLE, and its first batch for a partition adds it."""

UNPACKED_BYTES_AT_FIRST, USUAL_RATIO = 1 << 20, 8
RECORDS_AT_ONCE, UNPACKED_BYTES_AT_ONCE = 4_000, 256 << 10
"""Checked in the connection's callback, for each request: some 2 ms."""

_PARTITIONS = itemgetter(1)
"""The partitions of a request's topic, of which there may be none."""

_events = structlog.get_logger("request")


LOST_GUARD = VerificationGuard(Verifications(Producers()))
"""The guard of a batch that this broker could not verify. `Partition.append` still refuses it if that has changed."""


class Unchecked(NamedTuple):
    """A batch of which the records are to be checked in a thread."""

    topic: str
    data: PartitionData
    outcome: ProduceOutcome


class Unverified(NamedTuple):
    """The batches of a request that begin a transaction in their partition, and are to be verified."""

    verification: Verification
    guards: dict[TopicPartition, VerificationGuard]
    errors: dict[TopicPartition, StaleProducerEpoch]


class ProduceHandler:
    """The broker's Produce API."""

    def __init__(
        self,
        replicas: Replicas,
        decoding: DecodeQueue,
        wall_clock: Callable[[], int],
        find_leader: FindLeader,
        turns: Turns,
        verifier: TransactionVerifier,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._authorizer = authorizer
        """None if every client may do everything."""
        self._turns, self._verifier = turns, verifier
        self._replicas, self._decoding, self._wall_clock = replicas, decoding, wall_clock
        self._find_leader = find_leader
        self._now = asyncio.get_running_loop().time
        self._budget = Budget()
        self._tasks = Tasks()

    def handle(self, head: RequestHead, frame: memoryview, slot: Slot) -> None:
        """Append the batches of a request, and fill `slot` when they are acknowledged. Raises Malformed."""
        if not 0 <= head.version <= KEY.versions[-1]:
            raise Malformed(f"Produce in version {head.version}, which is not supported")
        lone = read_lone(head, frame)
        if lone is not None:
            self._append_lone(head, lone, slot)
            return
        reading = read_produce(head, frame)
        request = some(reading, STEPS_AT_ONCE)
        if request is None:
            self._begin(slot, self._read_on(head, reading, slot))
        elif request.partitions <= FEW_PARTITIONS or slot.reserve(request.partitions * OUTCOME_BYTES):
            appending = self._append_all(head, request, slot)
            if some(appending, STEPS_AT_ONCE) is None:
                self._begin(slot, appending)

    def _read_on(self, head: RequestHead, reading: Steps[ProduceRequest], slot: Slot) -> Steps[bool]:
        request = yield from reading
        slot.hold(request.partitions * OUTCOME_BYTES)
        return (yield from self._append_all(head, request, slot))

    def _begin(self, slot: Slot, steps: Steps[bool]) -> None:
        """Handle the rest of a large request in slices of the loop's time. The connection's next request waits."""
        slot.connection.freeze()
        self._tasks.spawn(self._in_turns(slot.connection, steps))

    async def _in_turns(self, connection: Connection, steps: Steps[bool]) -> None:
        is_handled = True
        try:
            is_handled = await self._turns.run(steps)
        except Malformed as malformed:
            connection.close(f"a malformed request: {malformed}")
        except Exception as error:
            _events.exception("request.failed", api=KEY.name, client=connection.client_host)
            connection.close(f"{KEY.name} failed: {error!r}")
        finally:
            if is_handled:
                connection.thaw()

    def _fill_later(self, slot: Slot, encoding: Steps[bytes]) -> None:
        async def fill() -> None:
            slot.fill([await self._turns.run(encoding)])

        self._tasks.spawn(fill())

    def _pending(self, head: RequestHead, request: ProduceRequest, slot: Slot) -> PendingProduce:
        """Begin a request, with a full budget for the check of its records."""
        self._budget.records, self._budget.unpacked_bytes = RECORDS_AT_ONCE, UNPACKED_BYTES_AT_ONCE
        deadline = self._now() + request.timeout_ms / 1000
        return PendingProduce(head, slot, deadline, self._leader_of, self._fill_later, request.transactional_id)

    def _name_of(self, topic: Topic) -> str | None:
        """Return a topic's name; None for an id of which this broker has no replica."""
        return topic if isinstance(topic, str) else self._replicas.name_of(topic)

    def _leader_of(self, topic: Topic, index: int, listener: str) -> Leader | None:
        name = self._name_of(topic)
        return None if name is None else self._find_leader(name, index, listener)

    def _append_lone(self, head: RequestHead, request: ProduceRequest, slot: Slot) -> None:
        """Append the only batch of a request. The same as `_append_all`, without the steps of a large request."""
        pending, acks = self._pending(head, request, slot), request.acks
        topic, (data,) = request.topics[0]
        outcome = ProduceOutcome(pending, data.partition)
        pending.topics.append((topic, [outcome]))
        name = topic if type(topic) is str else self._name_of(topic)
        code = self._refusal(head.version, acks, name, slot.connection)
        if code or name is None:
            outcome.code = code
        elif not self._append(name, data, outcome, acks, self._wall_clock(), self._budget):
            self._check_beside(pending, [Unchecked(name, data, outcome)], acks)
            return
        self._end(pending, acks)

    def _append_all(self, head: RequestHead, request: ProduceRequest, slot: Slot) -> Steps[bool]:
        """Append every batch, a step or more for each. Return False if some are left to be checked in a thread."""
        pending, acks = self._pending(head, request, slot), request.acks
        now_ms = self._wall_clock()
        unchecked: list[Unchecked] = []
        unverified, of_all = None, 0
        if request.transactional_id is not None:
            unverified, of_all = yield from self._begin_transactional(head.version, request, slot.connection)
        for topic, partitions in request.topics:
            outcomes: list[ProduceOutcome] = []
            pending.topics.append((topic, outcomes))
            name = self._name_of(topic)
            code = of_all or self._refusal(head.version, acks, name, slot.connection)
            if not partitions:
                yield
            for data in partitions:
                outcome = ProduceOutcome(pending, data.partition)
                outcomes.append(outcome)
                if code or name is None:
                    outcome.code = code
                elif unverified or unchecked or not self._append(name, data, outcome, acks, now_ms, self._budget):
                    # Later batches of the request stay after it.
                    unchecked.append(Unchecked(name, data, outcome))
                for _ in range(len(data.records) // BYTES_PER_STEP + 1):
                    yield
        if unchecked:
            self._check_beside(pending, unchecked, acks, unverified)
        else:
            self._end(pending, acks)
        return not unchecked

    def _may_write(self, connection: Connection, topic: str) -> bool:
        return self._authorizer is None or self._authorizer.may(connection.identity, WRITE, TOPIC, topic)

    def _refusal(self, version: int, acks: int, topic: str | None, connection: Connection) -> int:
        """Return the error of a request that may not write to this topic at all, None if it is unknown; 0 if it may."""
        code: int = ErrorCode.none
        if version < KEY.versions[0]:
            code = ErrorCode.unsupported_version
        elif topic is None:
            code = ErrorCode.unknown_topic_id
        elif self._authorizer is not None and not self._may_write(connection, topic):
            code = ErrorCode.topic_authorization_failed
        elif acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            code = ErrorCode.invalid_required_acks
        elif topic in INTERNAL_TOPICS:
            code = ErrorCode.invalid_topic_exception
        return code

    def _begin_transactional(
        self, version: int, request: ProduceRequest, connection: Connection
    ) -> Steps[tuple[Unverified | None, int]]:
        """Refuse a request with a transactional batch if the client may not use the transactional id, or verify it."""
        authorizer, transactional_id = self._authorizer, request.transactional_id
        if authorizer is not None and transactional_id is not None:
            is_transactional = False
            for _, partitions in request.topics:
                for data in partitions:
                    yield
                    records = data.records
                    is_transactional |= len(records) > ATTRIBUTES_BYTE and bool(
                        records[ATTRIBUTES_BYTE] & TRANSACTIONAL
                    )
            if is_transactional and not authorizer.may(connection.identity, WRITE, TRANSACTIONAL_ID, transactional_id):
                return None, ErrorCode.transactional_id_authorization_failed
        return (yield from self._begin_verification(version, request, connection))

    def _begin_verification(
        self, version: int, request: ProduceRequest, connection: Connection
    ) -> Steps[tuple[Unverified | None, int]]:
        """Return what the transaction coordinator has to verify, if anything, and an error of the whole request, or 0.

        A request has the batches of one producer id.
        """
        assert request.transactional_id is not None, "the request is one of a transactional producer"
        producer: ProducerIdAndEpoch | None = None
        guards: dict[TopicPartition, VerificationGuard] = {}
        errors: dict[TopicPartition, StaleProducerEpoch] = {}
        for topic, partitions in filter(_PARTITIONS, request.topics):
            name = self._name_of(topic)
            # A topic that the client may not write to must not become part of the transaction.
            is_refused = name is None or not self._may_write(connection, name)
            for data in partitions:
                yield
                header = None if is_refused else _transactional(data.records)
                if header is None or name is None:
                    continue
                if producer is not None and producer.producer_id != header.producer_id:
                    return None, ErrorCode.invalid_producer_id_mapping
                producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                place = TopicPartition(name, data.partition)
                try:
                    guard = self._guard(place, data.records, header, is_v2=version >= ADDS_FROM)
                except StaleProducerEpoch as error:
                    errors[place] = error
                except EXPECTED:
                    guards[place] = LOST_GUARD
                else:
                    if guard is not None:
                        guards[place] = guard
        asked = tuple(place for place, guard in guards.items() if guard is not LOST_GUARD)
        if producer is None or not (asked or errors):
            return None, 0
        verification = Verification(request.transactional_id, producer, asked, _protocol(version))
        return Unverified(verification, guards, errors), 0

    def _guard(
        self, place: TopicPartition, records: Bytes, header: BatchHeader, *, is_v2: bool
    ) -> VerificationGuard | None:
        """Begin to verify a batch; return None if it needs none. Raises one of EXPECTED."""
        leader = self._replicas.led(*place).leader
        if not leader.needs_verification(header):
            return None
        # A header that is not sound must not be taken for one of a newer producer.
        return leader.begin_verification(check(records), is_v2=is_v2)

    async def close(self) -> None:
        """Cancel the requests that are still handled in slices or checked."""
        await self._tasks.close()

    def _check_beside(
        self,
        pending: PendingProduce,
        unchecked: Sequence[Unchecked],
        acks: int,
        unverified: Unverified | None = None,
    ) -> None:
        """Append these batches once they have been verified and checked. Until then the client's next request waits."""
        pending.slot.connection.freeze()
        self._tasks.spawn(self._append_checked(pending, unchecked, acks, unverified))

    async def _append_checked(
        self, pending: PendingProduce, unchecked: Sequence[Unchecked], acks: int, unverified: Unverified | None
    ) -> None:
        """Verify, check and append these batches, one after the other."""
        connection = pending.slot.connection
        try:
            codes: Codes = {}
            if unverified is not None and unverified.verification.partitions:
                codes = await self._verifier.verify(unverified.verification)
            async for batch in self._turns.each(unchecked):
                if unverified is None:
                    await self._check_and_append(batch, acks, None)
                else:
                    await self._append_verified(batch, acks, unverified, codes)
            self._end(pending, acks)
        except Exception as error:
            _events.exception("request.failed", api=KEY.name, client=connection.client_host)
            connection.close(f"{KEY.name} failed: {error!r}")
        finally:
            connection.thaw()

    async def _append_verified(self, batch: Unchecked, acks: int, unverified: Unverified, codes: Codes) -> None:
        topic, data, outcome = batch
        place = TopicPartition(topic, data.partition)
        guard = unverified.guards.get(place)
        if place in unverified.errors:
            outcome.refused(unverified.errors[place])
        elif code := codes.get(place):
            outcome.refused_by_coordinator(code, unverified.verification.protocol)
            if guard is not None and code not in RETRIED:
                guard.owner.refused(unverified.verification.producer.producer_id, guard)
        else:
            budget = Budget(records=RECORDS_AT_ONCE, unpacked_bytes=UNPACKED_BYTES_AT_ONCE)
            if not self._append(topic, data, outcome, acks, self._wall_clock(), budget, guard):
                await self._check_and_append(batch, acks, guard)

    async def _check_and_append(self, batch: Unchecked, acks: int, guard: VerificationGuard | None) -> None:
        topic, data, outcome = batch
        try:
            config = self._replicas.readable(topic, data.partition).log.config
            await self._check_records(data.records, config)
        except EXPECTED as error:
            outcome.refused(error)
        else:
            # The leadership may have changed meanwhile: `_append` checks it again.
            self._append(topic, data, outcome, acks, self._wall_clock(), None, guard)

    async def _check_records(self, batch: Bytes, config: LogConfig) -> None:
        """Raises what `check` and `admit_records` raise, and OutOfResources.

        Nearly all batches unpack to a few times their size, so that much is tried first. Others wait for more room.
        """
        room = min(max(UNPACKED_BYTES_AT_FIRST, USUAL_RATIO * len(batch)), UNPACKED_BYTES_MAX)
        while True:
            try:
                await self._decoding.run_steps(_check_records(batch, config, room), room)
                return
            except UnpacksTooLarge:
                if room == UNPACKED_BYTES_MAX:
                    raise
            room = min(USUAL_RATIO * room, UNPACKED_BYTES_MAX)

    def _append(
        self,
        topic: str,
        data: PartitionData,
        outcome: ProduceOutcome,
        acks: int,
        now_ms: int,
        budget: Budget | None,
        guard: VerificationGuard | None = None,
    ) -> bool:
        """Append a batch, or refuse it. Return False, with nothing done, if `budget` is too small to check it."""
        records = data.records
        try:
            attributes = records[ATTRIBUTES_BYTE]
            if attributes & TRANSACTIONAL and outcome.pending.transactional_id is None:
                outcome.code = ErrorCode.transactional_id_authorization_failed
                return True
            if attributes & CODEC_MASK == ZSTD and outcome.pending.head.version < ZSTD_FROM:
                outcome.refused(CodecRefused())
                return True
        except IndexError:
            # Too short for a batch: `Partition.append` refuses it.
            pass
        try:
            partition = self._replicas.readable(topic, data.partition)
            appended = partition.append(records, now_ms, must_be_safe=acks == ACKS_ALL, budget=budget, guard=guard)
        except OverBudget:
            return False
        except EXPECTED as error:
            outcome.refused(error)
            return True
        leader = partition.leading
        assert leader is not None, "it has just taken the batch"
        outcome.base_offset = appended.base_offset
        outcome.append_time = appended.append_time
        outcome.log_start = partition.log.log_start
        if acks == ACKS_ALL:
            must_wait = leader.when_committed(appended.end_offset, outcome)
        else:
            must_wait = acks == ACKS_LEADER and leader.when_durable(appended.end_offset, outcome)
        outcome.pending.left += must_wait
        return True

    def _end(self, pending: PendingProduce, acks: int) -> None:
        """Complete a request of which every batch is appended or refused."""
        if acks == ACKS_NONE:
            self._end_unacknowledged(pending)
        else:
            pending.one_done()

    def _end_unacknowledged(self, pending: PendingProduce) -> None:
        """Close the connection if a batch of an acks=0 request was refused, as Kafka does."""
        failed = [outcome for _, outcomes in pending.topics for outcome in outcomes if outcome.code]
        if failed:
            pending.slot.connection.close(f"produce with acks=0 refused: {failed[0].message or failed[0].code}")
        else:
            pending.slot.fill([])


def _protocol(version: int) -> TransactionProtocol:
    if version >= ADDS_FROM:
        return TransactionProtocol.ADDS
    return TransactionProtocol.KNOWS_ABORTABLE if version >= ABORTABLE_FROM else TransactionProtocol.FIRST


def _transactional(records: Bytes) -> BatchHeader | None:
    """Return the unchecked header of a transactional batch; None for any other bytes.

    A batch without sequence numbers, such as a marker, is refused by `admit`: nothing has to wait for it.
    """
    try:
        header = peek(records)
    except CorruptBatch:
        return None
    return header if header.is_transactional and header.base_sequence >= 0 else None


def _check_records(batch: Bytes, config: LogConfig, unpacked_bytes_max: int) -> Steps[None]:
    """Raises what `check` and `admit_records` raise."""
    yield from admit_records_in_steps(batch, check(batch), config, Budget(unpacked_bytes=unpacked_bytes_max))
