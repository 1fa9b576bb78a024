"""HTTP listings and metrics of thousands of partitions and transactions are made in small steps of the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import sentinel

import msgspec
from loop_steps import LongestStep

from cordwood.bench.counters.cluster import CountedCluster
from cordwood.chaos.sim.kafka import duration, message, part
from cordwood.chaos.sim.loop import run
from cordwood.chaos.sim.plan import TOPIC
from cordwood.cluster.broker.broker import Broker
from cordwood.cluster.broker.http_access import http_access
from cordwood.cluster.groups.coordinator import GroupCoordinator
from cordwood.cluster.http.api import archive, cluster, groups, partitions, topics, transactions
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.json_rows import ROWS_PER_STEP, rows_encoded
from cordwood.cluster.http.metrics.scrape import Scraper
from cordwood.cluster.http.route import ApiRequest, Nothing
from cordwood.cluster.http.routes import status_of
from cordwood.cluster.http.security.access import Access
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.security.authorizer import OPEN_ACCESS
from cordwood.cluster.security.principal import NO_IDENTITY
from cordwood.cluster.transactions.coordinator import TransactionCoordinator
from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.steps import some

PARTITIONS = TRANSACTIONS = GROUPS = 4000
CALLS_MAX = 14_500
"""Per step: less than 5 ms, most of it in the Kafka handlers that HTTP sends requests to."""
CALLS_OF_GROUPS_MAX = 21_000
"""A slice ends after SLICE_STEPS rows, as no time passes in the simulator. These rows have more fields."""


async def make_large(admin: Any, leader: Any) -> None:
    """Add partitions to the topic, and commit an offset of a group in each of them."""
    api = ApiKey.CREATE_PARTITIONS
    more = part(api, "CreatePartitionsTopic", name=TOPIC, count=PARTITIONS, assignments=None)
    await admin.ask(leader, message(api, topics=(more,), timeout=duration(30), validate_only=False), 30)
    await commit(admin, leader, PARTITIONS)


async def commit(admin: Any, leader: Any, count: int) -> None:
    """Commit an offset of a group in each of the first partitions."""
    api = ApiKey.OFFSET_COMMIT
    rows = tuple(
        part(api, "OffsetCommitRequestPartition", partition_index=index, committed_offset=0, committed_metadata=None)
        for index in range(count)
    )
    committed = part(api, "OffsetCommitRequestTopic", name=TOPIC, partitions=rows)
    fields = {"group_id": "readers", "generation_id_or_member_epoch": -1, "member_id": "", "topics": (committed,)}
    while (await admin.ask(leader, message(api, **fields), 30)).topics[0].partitions[0].error_code:
        await asyncio.sleep(0.1)


async def make_open_transactions(admin: Any, leader: Any, coordinator: TransactionCoordinator) -> None:
    """Initialize a producer, and put many open transactions like it into the coordinator's memory."""
    asked_for = message(
        ApiKey.INIT_PRODUCER_ID,
        transactional_id="id",
        transaction_timeout=duration(60),
        producer_id=-1,
        producer_epoch=-1,
    )
    while (await admin.ask(leader, asked_for, 30)).error_code:
        await asyncio.sleep(0.1)
    shards = coordinator._store.shards
    (known,) = (known for shard in shards for known in shard.transactions.values())
    began = known._replace(state=TransactionState.ONGOING, start_ms=known.update_ms)
    for number in range(TRANSACTIONS):
        shards[number % len(shards)].put(f"id-{number}", began)


def make_groups(coordinator: GroupCoordinator) -> None:
    """Put many groups like the known one into the coordinator's memory."""
    (shard,) = (shard for shard in coordinator._state_store.shards if "readers" in shard.groups)
    for number in range(GROUPS):
        shard.groups[f"readers-{number}"] = shard.groups["readers"]


def asked(context: Context, query: Any = None, **path: str) -> ApiRequest[Any, Any]:
    return ApiRequest(context, path, query, Nothing(), sentinel.request)


ANSWERS: dict[str, Callable[[Context], Awaitable[Any]]] = {
    "/metrics": lambda context: Scraper(context.watched).scrape(),
    "/v1/status": lambda context: status_of(context.watched),
    "/v1/cluster": lambda context: cluster.describe_cluster(asked(context)),
    "/v1/topics": lambda context: topics.list_topics(asked(context, topics.TopicsQuery())),
    "/v1/partitions": lambda context: partitions.list_all_partitions(
        asked(context, partitions.AllPartitionsQuery(internal=True))
    ),
    "/v1/topics/…/partitions": lambda context: partitions.list_partitions(
        asked(context, partitions.PartitionsQuery(offsets=True), topic=TOPIC)
    ),
    "/v1/groups/…": lambda context: groups.describe_group(asked(context, group="readers")),
    "/v1/transactions": lambda context: transactions.list_transactions(
        asked(context, transactions.TransactionsQuery(limit=transactions.ROWS_MAX))
    ),
    "/v1/transactions?open_longer_than_ms=…": lambda context: transactions.list_transactions(
        asked(context, transactions.TransactionsQuery(open_longer_than_ms=3_600_000))
    ),
    "/v1/archive": lambda context: archive.describe_archive(asked(context, archive.ArchiveQuery())),
    "/v1/groups/…/reset": lambda context: groups.reset_group(
        ApiRequest(
            context, {"group": "readers"}, Nothing(), groups.Reset(to="earliest", dry_run=True), sentinel.request
        )
    ),
}


def context_of(broker: Broker) -> Context:
    """Return the context of a client that may do anything."""
    assert broker.watched is not None, "it has joined its cluster"
    control = http_access(broker._services, broker._credentials, None, lambda: True, lambda: 0.0)
    return broker._context(broker.watched, control).under(Access(NO_IDENTITY, OPEN_ACCESS))


def longest_steps() -> dict[str, int]:
    """Return the number of calls in the longest step of each answer."""

    async def scenario() -> dict[str, int]:
        counted, calls = await CountedCluster(1).begin(), {}
        await counted.by(make_large(counted.client("admin"), counted.leader(0)), "admin")
        await asyncio.sleep(3)
        broker = counted.world.hosts[1].broker
        assert broker is not None, "it runs"
        made = make_open_transactions(counted.client("other"), counted.leader(0), broker._transactions)
        await counted.by(made, "other")
        context = context_of(broker)
        for path, answer in ANSWERS.items():
            with LongestStep() as longest:
                found = await counted.by(answer(context), "broker-1")
            calls[path] = longest.calls
            if path == "/v1/transactions":
                assert (found.total, len(found.transactions)) == (TRANSACTIONS + 1, TRANSACTIONS + 1)
        return calls

    return run(scenario())


def test_answers_about_thousands_of_partitions_and_transactions_let_others_in() -> None:
    assert {path: calls for path, calls in longest_steps().items() if calls > CALLS_MAX} == {}


def test_answers_about_thousands_of_groups_let_others_in() -> None:
    async def scenario() -> tuple[int, int]:
        counted = await CountedCluster(1).begin()
        await counted.by(commit(counted.client("admin"), counted.leader(0), 1), "admin")
        broker = counted.world.hosts[1].broker
        assert broker is not None, "it runs"
        make_groups(broker._groups)
        context = context_of(broker)
        with LongestStep() as scrape:
            await counted.by(Scraper(context.watched).scrape(), "broker-1")
        with LongestStep() as listing:
            found = await counted.by(groups.list_groups(asked(context)), "broker-1")
        assert len(found.groups) == GROUPS + 1
        return scrape.calls, listing.calls

    scrape, listing = run(scenario())
    assert scrape <= CALLS_MAX
    assert listing <= CALLS_OF_GROUPS_MAX


def test_rows_of_a_response_are_encoded_in_steps() -> None:
    rows = [groups.ListedGroup(f"group-{number}", "classic", "Empty", "", 1) for number in range(10 * ROWS_PER_STEP)]
    whole = groups.Groups(rows, [])
    assert some(rows_encoded(whole), 10) is None, "it takes a step for each ROWS_PER_STEP rows"
    encoded = some(rows_encoded(whole), 11)
    assert msgspec.json.encode(encoded) == msgspec.json.encode(whole)
    short = groups.Groups(rows[:3], [2])
    assert some(rows_encoded(short), 1) is short
