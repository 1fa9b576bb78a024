"""Metrics of transactions: states, ages, outcomes, missing markers, and partitions that they hold back."""

import pytest
from http_fixture import HttpStory, run
from replica_fixture import NOW_MS
from transactions import decide, write
from transactions_fixture import ONE, TWO

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.http.metrics.transactions import LATE_MS
from cordwood.cluster.transactions.states import TransactionState

PLACE = {"topic": "t", "partition": "0"}


async def flush(broker: HttpStory) -> None:
    """Run the group commit of what was appended, which commits it too: there is no other replica in sync."""
    await broker.replicas.turn()
    broker.replicas.let_go()


def test_transactions_are_counted_by_state_with_the_age_of_the_oldest() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            assert await broker.metric("transactions", state="Ongoing") == 0
            assert await broker.metric("oldest_transaction_age_seconds") == 0
            transactions = broker.transactions
            await transactions.init()
            assert await broker.metric("transactions", state="Empty") == 1
            await transactions.add(ONE)
            (ongoing,) = transactions.coordinator.open()
            broker.now_ms = ongoing.start_ms + 90_000
            assert await broker.metric("transactions", state="Ongoing") == 1
            assert await broker.metric("oldest_transaction_age_seconds") == 90
            await transactions.end("commit")
            await transactions.until_state(TransactionState.COMPLETE_COMMIT)
            assert await broker.metric("transactions", state="CompleteCommit") == 1
            assert await broker.metric("oldest_transaction_age_seconds") == 0
            assert await broker.metric("transactions_ended_total", outcome="commit") == 1
            assert await broker.metric("transactions_ended_total", outcome="abort") == 0

    run(story())


def test_a_scrape_does_not_look_at_ids_without_an_open_transaction() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            transactions = broker.transactions
            for number in range(50):
                await transactions.init(transactional_id=f"id-{number}")
            assert await broker.metric("transactions", state="Empty") == 50
            assert list(transactions.coordinator.open()) == []
            await transactions.add(ONE, transactional_id="id-49")
            assert len(list(transactions.coordinator.open())) == 1
            assert await broker.metric("transactions", state="Empty") == 49
            assert await broker.metric("transactions", state="Ongoing") == 1

    run(story())


def test_markers_that_are_not_acknowledged_are_counted_with_the_age_of_their_decision() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            transactions = broker.transactions
            await transactions.init()
            await transactions.add(ONE, TWO)
            transactions.gate.clear()
            await transactions.end("abort")
            (decided,) = transactions.coordinator.open()
            broker.now_ms = decided.update_ms + 5_000
            assert await broker.metric("missing_transaction_markers") == 2
            assert await broker.metric("transaction_marker_lag_seconds") == 5
            transactions.gate.set()
            await transactions.until_state(TransactionState.COMPLETE_ABORT)
            assert await broker.metric("missing_transaction_markers") == 0
            assert await broker.metric("transaction_marker_lag_seconds") == 0
            assert await broker.metric("transactions_ended_total", outcome="abort") == 1

    run(story())


def test_a_producer_that_loses_its_open_transaction_to_another_one_is_fenced() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            transactions = broker.transactions
            await transactions.init()
            await transactions.init()
            assert await broker.metric("fenced_producers_total", cause="new_producer") == 0, "nothing was open"
            await transactions.add(ONE)
            with pytest.raises(Refused):
                await transactions.init()
            assert await broker.metric("fenced_producers_total", cause="new_producer") == 1
            assert await broker.metric("fenced_producers_total", cause="timeout") == 0

    run(story())


def test_an_open_transaction_holds_back_its_partition_and_is_late_once_no_transaction_may_be_open() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            partition = broker.lead(1)
            assert await broker.metric("last_stable_offset_lag_records", **PLACE) is None
            write(partition, "a", "b")
            await flush(broker)
            max_ms = broker.transactions.coordinator.max_timeout_ms + LATE_MS
            broker.now_ms = NOW_MS + max_ms
            assert await broker.metric("last_stable_offset_lag_records", **PLACE) == 2
            assert await broker.metric("late_transaction_partitions") == 0
            broker.now_ms += 1
            assert await broker.metric("late_transaction_partitions") == 1
            decide(partition, commit=False)
            await flush(broker)
            assert await broker.metric("last_stable_offset_lag_records", **PLACE) is None
            assert await broker.metric("late_transaction_partitions") == 0

    run(story())


def test_a_follower_reports_nothing_that_is_held_back() -> None:
    async def story() -> None:
        async with HttpStory() as broker:
            write(broker.lead(1), "a")
            await flush(broker)
            broker.follow(2)
            assert await broker.metric("last_stable_offset_lag_records", **PLACE) is None

    run(story())
