"""Simulated transactional clients: transactions over several partitions and a group's offset, in both protocols.

Version 1 names its partitions by AddPartitionsToTxn before it writes to them; in version 2 (KIP-890) the first write to
a partition adds it, and each EndTxn raises the epoch.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import ACKS_ALL, UNKNOWN, Outcome, content_of
from cordwood.chaos.history_builder import HistoryBuilder
from cordwood.chaos.sim.consumer import Reader
from cordwood.chaos.sim.coordinators import GROUP, RETRIED, TRANSACTION, ClientDied, CoordinatorClient, SessionEnded
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import (
    VERSIONS,
    VERSIONS_2,
    SimulatedClient,
    duration,
    message,
    part,
)
from cordwood.chaos.sim.producer import PRODUCE_TIMEOUT_S, Alarm
from cordwood.chaos.workload import AppendWorkload, PlannedRecord
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode
from cordwood.storage.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
ABORT_SHARE = 0.25
TRANSACTIONS_OF_SESSION = range(3, 40)
ROUNDS, RECORDS_OF_ROUND = (1, 1, 2, 3), range(1, 6)
STEPS_MAX = 8
"""The largest number of requests that a client sends in its last transaction."""
INPUT_WAIT_S = 0.1
CLOCK_RATE_MIN = 0.97
"""Brokers' clocks may be so much faster than a client's."""

FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
"""Codes for a client that has a successor, or whose transaction has exceeded its timeout."""


@dataclass(frozen=True, slots=True)
class TransactionalPlan:
    """The parameters of one transactional id."""

    is_v2: bool
    interval_s: float
    timeout_s: float
    patience_s: float
    """The time after which a client gives up a write, and aborts."""
    payload_bytes_max: int
    input_partition: int | None
    """The partition that the transactions consume, with their offset in a group; None for none."""
    death_share: float
    """The share of transactions in which the client dies, and begins again."""
    zombie_share: float
    """The share of transactions that go on beside the client's successor."""
    delayed_share: float
    """The share of transactions of which a request arrives once more, on an older connection."""

    @property
    def version(self) -> int:
        return 2 if self.is_v2 else 1


class _GivenUp(Exception):
    """A write was not acknowledged in time."""


@dataclass(slots=True)
class _Input:
    """The range of the input partition that a transaction has consumed."""

    begin: int
    end: int


class TransactionalClient:
    """One transactional id, and one client program after the other that has it.

    `in_flight` is not 0 while a transaction is open that a living client is to end.
    """

    def __init__(
        self,
        client: SimulatedClient,
        plan: TransactionalPlan,
        number: int,
        producer: int,
        workload: AppendWorkload,
        history: HistoryBuilder,
        alarm: Alarm,
        reader: Reader | None,
        has_steady_clocks: bool,
    ) -> None:
        """`producer` is the number of the sends' producer. `reader` reads the input partition."""
        self.client, self.plan, self.number, self.producer = client, plan, number, producer
        self.workload, self.history, self.alarm, self.reader = workload, history, alarm, reader
        self.has_steady_clocks = has_steady_clocks
        if reader is not None:
            reader.max_wait_s = INPUT_WAIT_S
        self.transactional_id, self.group = f"transactional-{number}", f"group-of-transactional-{number}"
        self.in_flight = 0
        self.is_stopping = False
        self.sessions = 0
        """The number of sessions that were begun."""
        self.may_be_fenced = False
        """Whether an InitProducerId has no answer: the broker may still handle it, after the next session's."""

    def stop(self) -> None:
        self.is_stopping = True

    async def run(self) -> None:
        """Begin one session after the other, until `stop`."""
        while not self.is_stopping:
            self.in_flight += 1
            try:
                session = _Session(self, self.client.twin())
                await session.begin()
                await self._use(session)
            except SessionEnded as refused:
                self.alarm("refused-session", f"{self.client.name} got {refused}")
                await self.client.refresh_patiently()
            finally:
                self.in_flight -= 1

    async def _use(self, session: "_Session") -> None:
        """Run transactions until the session has ended."""
        rng, plan = self.client.rng, self.plan
        for _ in range(rng.choice(TRANSACTIONS_OF_SESSION)):
            await asyncio.sleep(rng.uniform(0.2, 1.8) * plan.interval_s)
            if self.is_stopping:
                return
            fate = rng.random()
            transaction = await session.prepare()
            if fate < plan.death_share:
                session.dies_after(rng.randrange(STEPS_MAX))
            if plan.death_share <= fate < plan.death_share + plan.zombie_share:
                self.client.did("transaction-of-a-zombie")
                self.client.loop.create_task(self._finish(transaction))
                await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 1.0))))
                return
            if not await self._finish(transaction):
                return
        if rng.random() < 0.5:
            session.client.hang_up()

    async def _finish(self, transaction: Coroutine[Any, Any, bool]) -> bool:
        self.in_flight += 1
        try:
            return await transaction
        finally:
            self.in_flight -= 1


@dataclass(slots=True)
class _Progress:
    """One transaction of a session."""

    row: int
    """Its number in the history."""
    began_s: float
    consumed: _Input | None
    added: set[int] = field(default_factory=set)
    """The partitions that the transaction has."""
    is_with_group: bool = False


class _Session:
    """One client program with the transactional id, from its InitProducerId to its end."""

    def __init__(self, program: TransactionalClient, client: SimulatedClient) -> None:
        self.client = client
        self._program, self._plan, self._history = program, program.plan, program.history
        self._versions = VERSIONS_2 if program.plan.is_v2 else VERSIONS
        self._number, self._row = 0, UNKNOWN
        self._producer_id, self._epoch = NO_PRODUCER
        self._sequences: dict[int, int] = {}
        keys = {GROUP: program.group, TRANSACTION: program.transactional_id}
        self._coordinators = CoordinatorClient(client, keys, program.plan.delayed_share)
        self._position: int | None = None
        """The position in the input partition; None if it is to be fetched."""

    def dies_after(self, steps: int) -> None:
        self._coordinators.steps_left = steps

    async def begin(self) -> None:
        """Get a producer id with a new epoch, which fences all earlier sessions. Raises SessionEnded."""
        self._program.sessions += 1
        self._number = self._program.sessions
        self._row = self._history.session(self._program.number, round(self._plan.timeout_s * 1000), self.client.now_ns)
        await self._introduce(NO_PRODUCER)
        self._history.session_began(self._row, self.client.now_ns, self._producer_id, self._epoch)

    async def _introduce(self, known: tuple[int, int]) -> None:
        """Send InitProducerId. With a known producer id and epoch, it raises the epoch of this session (KIP-360)."""
        request = self._message(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=self._program.transactional_id,
            transaction_timeout=duration(self._plan.timeout_s),
            producer_id=known[0],
            producer_epoch=known[1],
        )
        answer, was_unanswered = await self._coordinators.ask(TRANSACTION, request, lambda answer: answer.error_code)
        self._program.may_be_fenced |= was_unanswered and known == NO_PRODUCER
        self._set_producer(answer)

    def _set_producer(self, answer: Any) -> None:
        self._producer_id, self._epoch = int(answer.producer_id), int(answer.producer_epoch)
        self._sequences.clear()

    async def prepare(self) -> Coroutine[Any, Any, bool]:
        """Consume the input of a transaction. Return the transaction, to be awaited: False if it ends the session."""
        began_s = self.client.loop.time()
        row = self._history.begin_transaction(self._row, self.client.now_ns)
        self.client.did(f"transaction-version-{self._plan.version}")
        return self._run(_Progress(row, began_s, await self._consume()))

    async def _run(self, transaction: _Progress) -> bool:
        try:
            await self._work(transaction)
            await self._end(transaction, is_commit=self.client.rng.random() >= ABORT_SHARE)
        except ClientDied:
            self.client.did("transaction-left-open")
            self.client.hang_up()
            return False
        except _GivenUp:
            return await self._give_up(transaction)
        except SessionEnded as refused:
            self._judge(refused, transaction)
            return False
        return True

    async def _give_up(self, transaction: _Progress) -> bool:
        """Abort, and raise the epoch, so that a write that is still on its way is refused."""
        self.client.did("transaction-given-up")
        try:
            if self._plan.is_v2 or transaction.added or transaction.is_with_group:
                await self._end(transaction, is_commit=False)
            if not self._plan.is_v2:
                await self._introduce((self._producer_id, self._epoch))
        except ClientDied:
            self.client.did("transaction-left-open")
            self.client.hang_up()
            return False
        except SessionEnded as refused:
            self._judge(refused, transaction)
            return False
        return True

    def _judge(self, refused: SessionEnded, transaction: _Progress) -> None:
        """Report a refusal without a reason."""
        program = self._program
        lasted_s = self.client.loop.time() - transaction.began_s
        has_reason = (
            program.may_be_fenced
            or program.sessions > self._number
            or not program.has_steady_clocks
            or lasted_s > CLOCK_RATE_MIN * self._plan.timeout_s
        )
        if refused.code in FENCED:
            self.client.did("transaction-fenced")
        if not has_reason:
            sentence = f"{self.client.name} got {refused}, {lasted_s:.3f} s after it had begun its transaction"
            program.alarm("unfounded-fence", sentence)

    async def _consume(self) -> _Input | None:
        """Read from the group's committed offset, or go on. Return None if there is nothing new."""
        reader = self._program.reader
        if reader is None:
            return None
        if self._position is None:
            self._position = await self._committed_offset(reader.partition)
            reader.begin(self._position)
        elif reader.position != self._position:
            # The last transaction was aborted.
            reader.begin(self._position)
        begin = self._position
        if not await reader.poll():
            await reader.client.refresh_patiently()
        return _Input(begin, reader.position) if reader.position > begin else None

    async def _committed_offset(self, partition: int) -> int:
        """Return the group's committed offset, once no transaction has a pending one."""
        topic = part(
            ApiKey.OFFSET_FETCH, "OffsetFetchRequestTopics", name=self.client.topic, partition_indexes=(partition,)
        )
        group = part(ApiKey.OFFSET_FETCH, "OffsetFetchRequestGroup", group_id=self._program.group, topics=(topic,))
        request = message(ApiKey.OFFSET_FETCH, groups=(group,), require_stable=True)
        asked_ns = self.client.now_ns

        def code_of(answer: Any) -> ErrorCode:
            (group,) = answer.groups
            code: ErrorCode = group.error_code
            return code if code is not ErrorCode.none else group.topics[0].partitions[0].error_code

        answer, _ = await self._coordinators.ask(GROUP, request, code_of)
        offset = int(answer.groups[0].topics[0].partitions[0].committed_offset)
        self._history.read_offset(self._program.number, partition, offset, asked_ns, self.client.now_ns)
        return max(0, offset)

    async def _work(self, transaction: _Progress) -> None:
        """Write to some partitions, and send the offset of what was consumed."""
        rng = self.client.rng
        for _ in range(rng.choice(ROUNDS)):
            by_partition: dict[int, list[PlannedRecord]] = {}
            for _ in range(rng.choice(RECORDS_OF_ROUND)):
                append = self._program.workload.next()
                by_partition.setdefault(append.partition, []).append(append)
            if not self._plan.is_v2:
                await self._add(transaction, by_partition)
            sends = (self._send(transaction, partition, records) for partition, records in by_partition.items())
            for result in await asyncio.gather(*sends, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        if transaction.consumed is not None:
            await self._send_offset(transaction, transaction.consumed)

    async def _add(self, transaction: _Progress, partitions: Sequence[int] | dict[int, Any]) -> None:
        """Add partitions to the transaction, in version 1."""
        new = tuple(partition for partition in partitions if partition not in transaction.added)
        if not new:
            return
        # A request without an answer may have added them.
        transaction.added.update(new)
        api = ApiKey.ADD_PARTITIONS_TO_TXN
        request = message(
            api,
            v3_and_below_transactional_id=self._program.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=(part(api, "AddPartitionsToTxnTopic", name=self.client.topic, partitions=new),),
        )

        def code_of(answer: Any) -> ErrorCode:
            codes = [row.partition_error_code for row in answer.results_by_topic_v3_and_below[0].results_by_partition]
            return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)

        await self._coordinators.ask_perhaps_late(request, code_of)

    async def _send(self, transaction: _Progress, partition: int, records: Sequence[PlannedRecord]) -> None:
        """Send one batch until it is answered. Raises _GivenUp, SessionEnded, ClientDied."""
        client, history, plan = self.client, self._history, self._plan
        now_ms = BEGAN_MS + client.now_ns // 1_000_000
        sends = []
        for record in records:
            send = history.invoke(
                self._program.producer,
                record.sequence,
                partition,
                client.now_ns,
                ACKS_ALL,
                now_ms,
                content_of(record.key, (), now_ms),
                transaction.row,
            )
            sends.append(send)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(records)
        transaction.added.add(partition)
        request = self._produce_request(partition, records, now_ms, sequence)
        gives_up_s = client.loop.time() + plan.patience_s
        try:
            while True:
                self._coordinators.step()
                code, offset = await self._produce(partition, request)
                if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                    break
                if code is not None and code not in RETRIED:
                    raise SessionEnded(code, f"Produce to partition {partition}")
                if client.loop.time() > gives_up_s:
                    raise _GivenUp
                client.did("batch-sent-again")
                await client.refresh_patiently()
        except (ClientDied, _GivenUp, SessionEnded):
            for send in sends:
                history.info(send, client.now_ns)
            raise
        for place, send in enumerate(sends):
            history.ok(send, UNKNOWN if offset < 0 else offset + place, client.now_ns)

    async def _produce(self, partition: int, request: Any) -> tuple[ErrorCode | None, int]:
        """Send a Produce request once. Return the code and the offset; None without an answer."""
        address = self.client.leader(partition)
        if address is None:
            return None, UNKNOWN
        try:
            answer = await self.client.ask(address, request)
        except OSError:
            return None, UNKNOWN
        row = answer.responses[0].partition_responses[0]
        return row.error_code, int(row.base_offset)

    def _produce_request(self, partition: int, records: Sequence[PlannedRecord], now_ms: int, sequence: int) -> Any:
        rows = [Record(place, now_ms, record.key, record.payload) for place, record in enumerate(records)]
        data = encode(
            rows,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        row = self._part(ApiKey.PRODUCE, "PartitionProduceData", index=partition, records=data)
        topic = self._part(ApiKey.PRODUCE, "TopicProduceData", name=self.client.topic, partition_data=(row,))
        return self._message(
            ApiKey.PRODUCE,
            transactional_id=self._program.transactional_id,
            acks=ACKS_ALL,
            timeout=duration(PRODUCE_TIMEOUT_S),
            topic_data=(topic,),
        )

    async def _send_offset(self, transaction: _Progress, consumed: _Input) -> None:
        """Send the position after the input as the group's offset."""
        program, reader = self._program, self._program.reader
        assert reader is not None, "it has consumed"
        transaction.is_with_group = True
        self._history.send_offset(transaction.row, program.number, reader.partition, consumed.begin, consumed.end)
        if not self._plan.is_v2:
            request = message(
                ApiKey.ADD_OFFSETS_TO_TXN,
                transactional_id=program.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=program.group,
            )
            await self._coordinators.ask_perhaps_late(request, lambda answer: answer.error_code)
        api = ApiKey.TXN_OFFSET_COMMIT
        row = self._part(
            api,
            "TxnOffsetCommitRequestPartition",
            partition_index=reader.partition,
            committed_offset=consumed.end,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = self._message(
            api,
            transactional_id=program.transactional_id,
            group_id=program.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(self._part(api, "TxnOffsetCommitRequestTopic", name=self.client.topic, partitions=(row,)),),
        )
        await self._coordinators.ask(GROUP, request, lambda answer: answer.topics[0].partitions[0].error_code)
        self.client.did("transaction-with-offsets")

    async def _end(self, transaction: _Progress, *, is_commit: bool) -> None:
        """Commit or abort. Raises SessionEnded, ClientDied."""
        history, client = self._history, self.client
        request = self._message(
            ApiKey.END_TXN,
            transactional_id=self._program.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        history.end_transaction(transaction.row, client.now_ns, is_commit=is_commit)
        self._coordinators.is_unanswered = False
        try:
            answer = await self._coordinators.ask_perhaps_late(request, lambda answer: answer.error_code)
        except SessionEnded:
            # Whether an earlier request without an answer has committed it is not known.
            outcome = Outcome.INFO if self._coordinators.is_unanswered else Outcome.FAIL
            history.transaction_ended(transaction.row, client.now_ns, outcome)
            raise
        history.transaction_ended(transaction.row, client.now_ns, Outcome.OK)
        client.did("transaction-committed" if is_commit else "transaction-aborted")
        if self._plan.is_v2:
            self._set_producer(answer)
        if is_commit and transaction.is_with_group and transaction.consumed is not None:
            self._position = transaction.consumed.end

    def _message(self, api: ApiKey, /, **fields: Any) -> Any:
        return message(api, self._versions[api], **fields)

    def _part(self, api: ApiKey, name: str, /, **fields: Any) -> Any:
        return part(api, name, self._versions[api], **fields)
