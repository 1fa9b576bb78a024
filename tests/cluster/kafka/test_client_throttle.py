"""Client quotas of a broker: rates that hold, responses at once, muted connections, and clients that notice nothing."""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from quotas_fixture import (
    QuotasFixture,
    add_partitions,
    batch,
    create,
    delete,
    fetch,
    fetched_bytes,
    produce,
    tell,
    throttle_ms,
    together,
)

from cordwood.cluster.kafka.client_throttle import RETURN_GAP_S, ClientThrottle

KB, MB = 1 << 10, 1 << 20
SECONDS = 30.0
AT_ONCE_S = 0.2
TOLERANCE = 0.1


@pytest.mark.parametrize("connections", [1, 10, 100])
def test_a_produce_quota_holds_for_all_connections_together(connections: int) -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", MB, client_id="app")
        clients = [broker.client("app") for _ in range(connections)]
        done = await together(*(broker.produce_for(client, SECONDS, 16 * KB) for client in clients))
        assert done == pytest.approx(SECONDS * MB, rel=TOLERANCE)

    tell(story)


@pytest.mark.parametrize("connections", [1, 10, 100])
def test_a_fetch_quota_holds_for_all_connections_together(connections: int) -> None:
    async def story(broker: QuotasFixture) -> None:
        for _ in range(20):
            await broker.ask(broker.admin, produce(batch(64 * KB)))
        await broker.set("consumer_byte_rate", MB, client_id="app")
        clients = [broker.client("app") for _ in range(connections)]
        wanted = fetch(MB)
        done = await together(*(broker.fetch_for(client, wanted, SECONDS) for client in clients))
        assert done == pytest.approx(SECONDS * MB, rel=TOLERANCE)

    tell(story)


def test_a_produce_beyond_the_quota_is_answered_at_once_and_the_next_one_waits() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", 100 * KB, client_id="app")
        app, large = broker.client("app"), produce(batch(600 * KB))
        response, took_s = await broker.ask(app, large)
        assert took_s < AT_ONCE_S
        assert throttle_ms(response) == pytest.approx(5000, abs=100)
        _, took_s = await broker.ask(app, produce(batch(10)))
        assert took_s == pytest.approx(5.0, abs=0.2)

    tell(story)


def test_a_client_within_its_quota_is_not_throttled() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", 100 * KB, client_id="app")
        app = broker.client("app")
        for _ in range(20):
            response, took_s = await broker.ask(app, produce(batch(50 * KB)))
            assert (throttle_ms(response), took_s < AT_ONCE_S) == (0, True)
            await asyncio.sleep(0.6)

    tell(story)


def test_others_notice_nothing() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", 10 * KB, client_id="app")
        await broker.set("consumer_byte_rate", 10 * KB, client_id="app")
        response, _ = await broker.ask(broker.client("app"), produce(batch(900 * KB)))
        assert throttle_ms(response) > 60_000
        other = broker.client("other")
        for request in (produce(batch(900 * KB)), fetch(MB)):
            response, took_s = await broker.ask(other, request)
            assert (throttle_ms(response), took_s < AT_ONCE_S) == (0, True)

    tell(story)


def test_a_fetch_in_debt_gets_no_data_at_once_and_then_all() -> None:
    async def story(broker: QuotasFixture) -> None:
        app = broker.client("app")
        await broker.ask(app, produce(batch(600 * KB)))
        await broker.set("consumer_byte_rate", 100 * KB, client_id="app")
        wanted = fetch(MB)
        response, _ = await broker.ask(app, wanted)
        assert (fetched_bytes(response) > 600 * KB, throttle_ms(response)) == (True, 0)
        response, took_s = await broker.ask(app, wanted)
        assert (fetched_bytes(response), took_s < AT_ONCE_S) == (0, True)
        assert throttle_ms(response) == pytest.approx(5000, abs=100)
        response, took_s = await broker.ask(app, wanted)
        assert fetched_bytes(response) > 600 * KB
        assert took_s == pytest.approx(5.0, abs=0.2)

    tell(story)


def test_consumers_in_debt_fetch_again_one_after_the_other_in_another_order_each_time() -> None:
    count = 100

    async def story(broker: QuotasFixture) -> None:
        await broker.ask(broker.admin, produce(batch(600 * KB)))
        await broker.set("consumer_byte_rate", 100 * KB, client_id="app")
        clients, wanted = [broker.client("app") for _ in range(count)], fetch(MB)
        await broker.ask(clients[0], wanted)

        async def fetch_again() -> list[tuple[float, int]]:
            """Return the consumers that were muted, in the order in which they were answered, with the time."""
            answers: list[tuple[float, int]] = []

            async def fetch_by(number: int) -> None:
                _, took_s = await broker.ask(clients[number], wanted)
                if took_s > AT_ONCE_S:
                    answers.append((broker.now, number))

            await asyncio.gather(*map(fetch_by, range(count)))
            return answers

        assert not await fetch_again(), "no consumer was muted before"
        # These were muted while few others were.
        assert len(await fetch_again()) == count
        orders = []
        for _ in range(2):
            answers = await fetch_again()
            times = [at for at, _ in answers]
            assert max(after - before for before, after in itertools.pairwise(times)) < 5 * RETURN_GAP_S
            assert times[-1] - times[0] == pytest.approx(count * RETURN_GAP_S, rel=0.2)
            orders.append([number for _, number in answers])
        neighbours = set(itertools.pairwise(orders[0])) & set(itertools.pairwise(orders[1]))
        assert len(neighbours) < count / 10

    tell(story)


def test_a_user_is_limited_over_its_client_ids() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", 100 * KB, user="ANONYMOUS")
        response, _ = await broker.ask(broker.client("one"), produce(batch(200 * KB)))
        assert throttle_ms(response) == pytest.approx(1000, abs=100)
        response, _ = await broker.ask(broker.client("two"), produce(batch(100 * KB)))
        assert throttle_ms(response) == pytest.approx(2000, abs=100)

    tell(story)


def test_a_removed_quota_frees_its_muted_connections() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", KB, client_id="app")
        app = broker.client("app")
        await broker.ask(app, produce(batch(900 * KB)))
        waiting = asyncio.ensure_future(broker.ask(app, produce(batch(10))))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        await broker.set("producer_byte_rate", None, client_id="app")
        response, took_s = await waiting
        assert throttle_ms(response) == 0
        assert took_s < 1.0 + AT_ONCE_S

    tell(story)


@pytest.mark.parametrize(("version", "is_strict"), [(7, True), (5, False)])
def test_changes_of_partitions_beyond_the_rate(version: int, is_strict: bool) -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("controller_mutation_rate", 2.0, client_id="app")
        app = broker.client("app")
        response, _ = await broker.ask(app, create("first", 10, version))
        assert response.topics[0].error_code is ErrorCode.none
        response, took_s = await broker.ask(app, create("second", 10, version))
        if is_strict:
            assert response.topics[0].error_code is ErrorCode.throttling_quota_exceeded
            assert throttle_ms(response) == pytest.approx(4000, abs=200)
        else:
            assert response.topics[0].error_code is ErrorCode.none
            assert took_s == pytest.approx(4.0, abs=0.2), "the connection was muted"
            assert throttle_ms(response) > 4000
        response, took_s = await broker.ask(app, create("third", 1, version))
        assert response.topics[0].error_code is ErrorCode.none
        assert took_s > 3.5

    tell(story)


@pytest.mark.parametrize(
    ("request_of", "first_strict"),
    [(partial(create, "new", 10), 6), (partial(add_partitions, "known", 20), 3), (partial(delete, "known"), 5)],
    ids=["create topics", "create partitions", "delete topics"],
)
@pytest.mark.parametrize("is_strict", [True, False])
def test_each_partition_that_is_created_or_deleted_counts(
    request_of: Callable[[int], Any], first_strict: int, is_strict: bool
) -> None:
    version = first_strict if is_strict else first_strict - 1

    async def story(broker: QuotasFixture) -> None:
        await broker.ask(broker.admin, create("known", 10))
        await broker.set("controller_mutation_rate", 2.0, client_id="app")
        response, _ = await broker.ask(broker.client("app"), request_of(version))
        # Ten partitions, of which two are free: it takes four seconds to pay for the rest.
        assert throttle_ms(response) == pytest.approx(0 if is_strict else 4000, abs=200)
        response, _ = await broker.ask(broker.client("app"), create("second", 1))
        assert response.topics[0].error_code is ErrorCode.throttling_quota_exceeded
        assert throttle_ms(response) == pytest.approx(4000, abs=200)

    tell(story)


def test_connections_beyond_the_rate_of_their_address_wait_for_their_turn() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("connection_creation_rate", 5.0, ip=None)
        began = broker.now

        async def first_answer(number: int) -> float:
            await broker.ask(broker.client(f"client {number}"), produce(batch(10)))
            return broker.now - began

        took = sorted(await asyncio.gather(*map(first_answer, range(20))))
        assert took[4] < AT_ONCE_S
        assert took[-1] == pytest.approx(3.0, abs=0.3)
        assert all(late - soon < 0.3 for soon, late in itertools.pairwise(took))

    tell(story)


def test_a_flood_of_connections_is_closed() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("connection_creation_rate", 1.0, ip=None)

        async def first_answer(number: int) -> bool:
            try:
                await broker.ask(broker.client(f"client {number}"), produce(batch(10)))
            except OSError:
                return False
            return True

        answered = await asyncio.gather(*map(first_answer, range(60)))
        assert sum(answered) == pytest.approx(22, abs=1)

    tell(story)


def test_a_request_without_an_answer_is_counted_too() -> None:
    async def story(broker: QuotasFixture) -> None:
        await broker.set("producer_byte_rate", 100 * KB, client_id="app")
        app = broker.client("app")
        await app.tell(broker.leader, produce(batch(300 * KB), acks=0))
        _, took_s = await broker.ask(app, produce(batch(10)))
        assert took_s == pytest.approx(2.0, abs=0.2)

    tell(story)


def test_a_broker_counts_only_what_has_a_quota() -> None:
    async def story() -> None:
        throttle = ClientThrottle()
        for quotas, counts in (
            ({}, (False, False)),
            ({(("user", "ann"),): {"producer_byte_rate": 1.0}}, (True, False)),
            ({(("ip", None),): {"connection_creation_rate": 1.0}}, (False, True)),
            ({}, (False, False)),
        ):
            throttle.follow(quotas)
            assert (throttle.is_active, throttle.limits_addresses) == counts

    asyncio.run(story())
