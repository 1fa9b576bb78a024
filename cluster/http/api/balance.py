"""The balance of the cluster over HTTP: what each broker holds, and the moves that even it out. Changes nothing."""

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from msgspec import Struct

from cordwood.cluster.balance import planner
from cordwood.cluster.balance.execution import COPIES_PER_BROKER
from cordwood.cluster.balance.plan import Share
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import HttpRefusal
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import DESCRIBE_CLUSTER
from cordwood.cluster.proposals.cluster_load import load_of, room_in

MINUTE_S = 60


class BalanceQuery(Struct, frozen=True):
    """The rate for the expected time."""

    bytes_per_second: int = 50_000_000
    """What each broker sends and receives for the moves."""


class BrokerShare(Struct, frozen=True):
    """What one broker holds."""

    size_bytes: int
    replicas: int
    leaders: int
    """Partitions of which the broker has the preferred replica."""


class BrokerBalance(Struct, frozen=True):
    """One broker, now and after the moves."""

    broker_id: int
    is_alive: bool
    is_cordoned: bool
    """A cordoned broker gets no new replicas."""
    now: BrokerShare
    after: BrokerShare


class PlannedMove(Struct, frozen=True):
    """New replicas of one partition, the preferred leader first."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]
    copied_bytes: int


class Balance(Struct, frozen=True):
    """A plan of moves. It is made again for each request, and none of its moves has begun."""

    verdict: str
    is_even: bool
    problems: list[str]
    copied_bytes: int
    expected_minutes: float
    brokers: list[BrokerBalance]
    moves: list[PlannedMove]


async def describe_balance(asked: ApiRequest[BalanceQuery, Nothing]) -> Balance:
    """Describe what each broker holds, and the moves that would even it out, as `cordwood balance` plans them."""
    context = asked.context
    image, turns = context.image, context.turns
    if asked.query.bytes_per_second < 1:
        raise HttpRefusal(400, "bytes_per_second must be at least 1.")
    load = await turns.run(load_of(image, *await _sizes(context)))
    plan = await turns.run(planner.balance(load))
    return Balance(
        verdict=plan.verdict(),
        is_even=plan.is_even,
        problems=list(plan.problems),
        copied_bytes=plan.copied_bytes,
        expected_minutes=round(plan.expected_s(asked.query.bytes_per_second, COPIES_PER_BROKER) / MINUTE_S, 2),
        brokers=[
            BrokerBalance(one.broker_id, one.is_alive, one.is_cordoned, _share(now), _share(then))
            for one, now, then in zip(load.brokers, plan.shares_before, plan.shares_after, strict=True)
        ],
        moves=[
            PlannedMove(move.topic, move.index, list(move.before), list(move.after), move.copied_bytes)
            for move in plan.moves
        ],
    )


async def _sizes(context: Context) -> tuple[dict[tuple[str, int], int], dict[int, int | None]]:
    """Return the bytes of each partition, and the room of each broker that answers."""
    alive = [int(broker.id) for broker in context.image.brokers.values() if not broker.is_fenced]
    answers = await context.cluster.ask_all(alive, lambda _: DescribeLogDirsRequest(topics=None))
    sizes: dict[tuple[str, int], int] = {}
    rooms: dict[int, int | None] = {}
    for broker_id, answer in answers.items():
        if answer is None:
            continue
        rooms[broker_id] = sum(room_in(found.usable_bytes, found.total_bytes) for found in answer.results)
        topics = ((topic.name, topic.partitions) for found in answer.results for topic in found.topics)
        async for name, row in context.turns.within(topics):
            sizes[name, row.partition_index] = max(sizes.get((name, row.partition_index), 0), row.partition_size)
    return sizes, rooms


def _share(share: Share) -> BrokerShare:
    return BrokerShare(share.size_bytes, share.replicas, share.leaders)


ROUTES = (
    Route(
        "GET",
        "/v1/balance",
        describe_balance,
        BalanceQuery,
        Nothing,
        Balance,
        requires=(DESCRIBE_CLUSTER,),
        refusals=(400, 503),
    ),
)
