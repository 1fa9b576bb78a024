"""Transactions over HTTP: the transactional ids of the cluster, the longest open transactions first."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Annotated, Any, NamedTuple

import msgspec
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest

from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import HttpRefusal, check
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION
from cordwood.cluster.kafka.handlers.find_coordinator import TRANSACTION
from cordwood.cluster.proposals.topics import TRANSACTION_STATE
from cordwood.cluster.transactions.states import OPEN, TransactionState
from cordwood.storage.steps import in_order

ROWS_MAX = 10_000
"""The limit of rows in a response, which is encoded in one step of a few milliseconds."""
ROWS_DEFAULT = 1000
DESCRIBED_MAX = 500
"""The limit of open transactions whose coordinators are asked when they began."""
AGES_MS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""The ages by which the oldest of more open transactions are found."""
ANY_AGE = -1
Int64 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_OPEN = frozenset(state.value for state in OPEN)


class TransactionsQuery(msgspec.Struct, frozen=True):
    """The selection of transactional ids. All conditions have to hold."""

    state: list[TransactionState] = []
    """May be repeated; without it, all states."""
    producer_id: list[Int64] = []
    """May be repeated; without it, all producers."""
    open_longer_than_ms: Int64 | None = None
    """Only transactions that are open for more milliseconds."""
    pattern: str | None = None
    """A regular expression (RE2) that matches the whole transactional id."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS_DEFAULT
    """The maximum number of transactional ids in the response."""


class ListedTransaction(msgspec.Struct, frozen=True):
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    open_for_ms: int | None
    """The age of the open transaction; null if none is open, or if it is not one of the 500 oldest."""


class TransactionList(msgspec.Struct, frozen=True):
    """The transactional ids that match, except those of brokers that did not respond.

    Open transactions come first, the oldest of them first; others are ordered by their transactional ids.
    """

    transactions: list[ListedTransaction]
    total: int
    """The number of transactional ids that match; the response may have fewer."""
    unanswered_by: list[int]


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition of an open transaction, which still gets a marker."""

    topic: str
    partition: int


class TransactionDetail(msgspec.Struct, frozen=True):
    """A transactional id with its open transaction, if it has one."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """The time when the open transaction began, in milliseconds since 1970; null if none is open."""
    open_for_ms: int | None
    partitions: list[TransactionPartition]


class _Row(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


async def list_transactions(asked: ApiRequest[TransactionsQuery, Nothing]) -> TransactionList:
    """List the transactional ids of all brokers, the longest open transactions first."""
    context, query = asked.context, asked.query
    rows, unanswered_by = await _listed(query, _age_of(query), context)
    starts = await _starts(await _oldest(query, rows, context), context)
    known: list[_Row] = []
    rest: list[_Row] = []
    async for row in context.turns.each(rows):
        (known if row.transactional_id in starts else rest).append(row)
    known.sort(key=lambda row: starts[row.transactional_id])
    if len(known) < query.limit:
        known += await context.turns.run(in_order(rest, itemgetter(0)))
    now_ms = context.wall_clock()
    shown = [_shown(row, starts, now_ms) async for row in context.turns.each(known[: query.limit])]
    return TransactionList(shown, len(rows), unanswered_by)


async def describe_transaction(asked: ApiRequest[Nothing, Nothing]) -> TransactionDetail:
    """Describe a transactional id with the partitions of its open transaction."""
    context, transactional_id = asked.context, asked.path["transactional_id"]
    coordinator = await _coordinator(transactional_id, context)
    request = DescribeTransactionsRequest(transactional_ids=(transactional_id,))
    (found,) = (await context.cluster.ask(coordinator, request)).transaction_states
    check(found.error_code)
    start_ms = _start_ms(found)
    places = context.turns.within((topic.topic, topic.partitions) for topic in found.topics)
    return TransactionDetail(
        transactional_id=transactional_id,
        state=found.transaction_state,
        coordinator=coordinator,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout // _MS,
        start_ms=start_ms,
        open_for_ms=None if start_ms is None else max(0, context.wall_clock() - start_ms),
        partitions=[TransactionPartition(topic, partition) async for topic, partition in places],
    )


def _age_of(query: TransactionsQuery) -> int:
    return ANY_AGE if query.open_longer_than_ms is None else query.open_longer_than_ms


async def _listed(query: TransactionsQuery, older_than_ms: int, context: Context) -> tuple[list[_Row], list[int]]:
    """Return the transactional ids that match, and the brokers that did not respond. Raises HttpRefusal."""
    request = ListTransactionsRequest(
        state_filters=tuple(state.value for state in query.state),
        producer_id_filters=tuple(query.producer_id),
        duration_filter=older_than_ms,
        transactional_id_pattern=query.pattern,
    )
    alive = [int(broker.id) for broker in context.image.brokers.values() if not broker.is_fenced]
    answers = await context.cluster.ask_all(alive, lambda _: request)
    found = {}
    for broker_id, answer in answers.items():
        if answer is not None and answer.error_code is ErrorCode.none:
            found[broker_id] = answer.transaction_states
        elif answer is not None and answer.error_code is ErrorCode.invalid_regular_expression:
            check(answer.error_code)
    rows = [
        _Row(row.transactional_id, row.transaction_state, row.producer_id, broker_id)
        async for broker_id, row in context.turns.within(found.items())
    ]
    return rows, sorted(answers.keys() - found.keys())


async def _oldest(query: TransactionsQuery, rows: Sequence[_Row], context: Context) -> Sequence[_Row]:
    """Return the open transactions among the rows; the oldest ones, if there are more than DESCRIBED_MAX."""
    found = [row async for row in context.turns.each(rows) if row.state in _OPEN]
    for age_ms in AGES_MS:
        if len(found) <= DESCRIBED_MAX:
            break
        older, _ = await _listed(query, max(age_ms, _age_of(query)), context)
        if not older:
            break
        found = older
    return found[:DESCRIBED_MAX]


async def _starts(rows: Iterable[_Row], context: Context) -> dict[str, int]:
    """Return when open transactions began, in milliseconds since 1970. Those that have ended since are left out."""
    by_coordinator: defaultdict[int, list[str]] = defaultdict(list)
    for row in rows:
        by_coordinator[row.coordinator].append(row.transactional_id)
    answers = await context.cluster.ask_all(
        by_coordinator, lambda broker: DescribeTransactionsRequest(transactional_ids=tuple(by_coordinator[broker]))
    )
    described = ((broker, answer.transaction_states) for broker, answer in answers.items() if answer is not None)
    starts = {found.transactional_id: _start_ms(found) async for _, found in context.turns.within(described)}
    return {transactional_id: start_ms for transactional_id, start_ms in starts.items() if start_ms is not None}


def _shown(row: _Row, starts: Mapping[str, int], now_ms: int) -> ListedTransaction:
    start_ms = starts.get(row.transactional_id)
    return ListedTransaction(*row, None if start_ms is None else max(0, now_ms - start_ms))


async def _coordinator(transactional_id: str, context: Context) -> int:
    """Return the coordinator of a transactional id. Raises HttpRefusal. A lookup does not create the topic."""
    if TRANSACTION_STATE not in context.image.topics_by_name:
        sentence = f"There is no transactional id {transactional_id!r}."
        raise HttpRefusal(404, sentence, ErrorCode.transactional_id_not_found)
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=(transactional_id,))
    (found,) = (await context.cluster.ask(None, request)).coordinators
    check(found.error_code, found.error_message)
    return int(found.node_id)


def _start_ms(found: Any) -> int | None:
    """Return when a described transaction began; None if none is open. A complete one still has its time."""
    return (found.transaction_start_time - _EPOCH) // _MS if found.transaction_state in _OPEN else None


ROUTES = (
    Route(
        "GET",
        "/v1/transactions",
        list_transactions,
        TransactionsQuery,
        Nothing,
        TransactionList,
        requires=(),
        each=(DESCRIBE_TRANSACTION,),
        refusals=(503,),
    ),
    Route(
        "GET",
        "/v1/transactions/{transactional_id}",
        describe_transaction,
        Nothing,
        Nothing,
        TransactionDetail,
        requires=(DESCRIBE_TRANSACTION,),
        each=(DESCRIBE_TOPIC,),
        refusals=(404, 503),
    ),
)
