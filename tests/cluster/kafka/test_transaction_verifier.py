"""Verification of transactional appends: which coordinator is asked, in which requests, and the codes for clients."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode
from scripted_transactions import ME, OTHER, Asked, ScriptedTransactions
from virtual_time import run

from cordwood.cluster.kafka.transaction_verifier import (
    ANSWER_S,
    CONCURRENT_S,
    TransactionProtocol,
    TransactionVerifier,
    Verification,
    for_produce,
)
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition

PRODUCER = ProducerIdAndEpoch(7, 3)
PLACES = (TopicPartition("t", 0), TopicPartition("u", 2), TopicPartition("t", 1))
FIRST, ABORTABLE, ADDS = TransactionProtocol
VERIFIED = dict.fromkeys(PLACES, ErrorCode.none)

Story = Callable[[TransactionVerifier, ScriptedTransactions], Awaitable[None]]


def tell(story: Story, leader: int | None = ME) -> None:
    async def reported() -> None:
        transactions = ScriptedTransactions()
        transactions.leader = leader
        verifier = TransactionVerifier(ME, transactions, lambda: transactions.image, transactions.ask)
        await story(verifier, transactions)
        await verifier.close()

    run(reported())


def of(name: str = "x", protocol: TransactionProtocol = FIRST) -> Verification:
    return Verification(name, PRODUCER, PLACES, protocol)


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize("protocol", [FIRST, ABORTABLE, ADDS])
def test_the_coordinator_is_asked_once_about_all_partitions(leader: int, protocol: TransactionProtocol) -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        assert await verifier.verify(of(protocol=protocol)) == VERIFIED
        (asked,) = transactions.asked
        assert asked._replace(partitions=()) == Asked("x", PRODUCER, (), adds=protocol is ADDS)
        assert set(asked.partitions) == set(PLACES)
        assert len(transactions.requests) == (leader == OTHER)

    tell(story, leader)


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_each_partition_has_its_own_code(leader: int) -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.codes = {PLACES[1]: ErrorCode.invalid_txn_state}
        assert await verifier.verify(of()) == {**VERIFIED, PLACES[1]: ErrorCode.invalid_txn_state}

    tell(story, leader)


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize(
    ("given", "protocol", "expected"),
    [
        (ErrorCode.producer_fenced, FIRST, ErrorCode.invalid_producer_epoch),
        (ErrorCode.producer_fenced, ADDS, ErrorCode.invalid_producer_epoch),
        (ErrorCode.transaction_abortable, FIRST, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, ABORTABLE, ErrorCode.transaction_abortable),
        (ErrorCode.transaction_abortable, ADDS, ErrorCode.transaction_abortable),
        (ErrorCode.invalid_producer_id_mapping, FIRST, ErrorCode.invalid_producer_id_mapping),
        (ErrorCode.concurrent_transactions, ADDS, ErrorCode.concurrent_transactions),
        (ErrorCode.coordinator_load_in_progress, FIRST, ErrorCode.coordinator_load_in_progress),
    ],
)
def test_a_refusal_has_the_code_that_the_client_knows(
    leader: int, given: ErrorCode, protocol: TransactionProtocol, expected: ErrorCode
) -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.code = given
        assert await verifier.verify(of(protocol=protocol)) == dict.fromkeys(PLACES, expected)

    tell(story, leader)


def test_without_a_coordinator_nothing_is_verified() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        assert await verifier.verify(of()) == dict.fromkeys(PLACES, ErrorCode.coordinator_not_available)
        transactions.leader = -1
        assert await verifier.verify(of()) == dict.fromkeys(PLACES, ErrorCode.coordinator_not_available)

    tell(story, None)


def test_an_answer_that_is_lost_is_a_network_exception() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.is_lost = True
        assert await verifier.verify(of()) == dict.fromkeys(PLACES, ErrorCode.network_exception)
        transactions.is_lost = False
        assert await verifier.verify(of()) == VERIFIED

    tell(story, OTHER)


@pytest.mark.parametrize("protocol", [FIRST, ABORTABLE, ADDS])
def test_a_silent_coordinator_holds_a_connection_for_two_seconds(protocol: TransactionProtocol) -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.gate.clear()
        began = asyncio.get_running_loop().time()
        codes = await verifier.verify(of(protocol=protocol))
        assert asyncio.get_running_loop().time() - began == pytest.approx(ANSWER_S)
        assert {for_produce(code, protocol) for code in codes.values()} == {ErrorCode.not_enough_replicas}
        transactions.gate.set()
        assert await verifier.verify(of(protocol=protocol)) == VERIFIED

    tell(story, OTHER)


def test_what_comes_during_a_request_goes_together_in_the_next_one() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.gate.clear()
        names = ["a", "b", "c", "b"]
        verifying = [asyncio.ensure_future(verifier.verify(of(name))) for name in names]
        await asyncio.sleep(0.01)
        assert transactions.requests == [["a", "b", "c"]], "each transactional id once"
        verifying += [asyncio.ensure_future(verifier.verify(of(name))) for name in "de"]
        await asyncio.sleep(0.01)
        transactions.gate.set()
        assert await asyncio.gather(*verifying) == [VERIFIED] * 6
        assert transactions.requests == [["a", "b", "c"], ["b", "d", "e"]]

    tell(story, OTHER)


def test_a_caller_that_has_gone_is_not_asked_for() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.gate.clear()
        first, gone, last = (asyncio.ensure_future(verifier.verify(of(name))) for name in "abc")
        await asyncio.sleep(0.01)
        first.cancel()
        again = asyncio.ensure_future(verifier.verify(of("d")))
        await asyncio.sleep(0.01)
        again.cancel()
        await asyncio.sleep(0.01)
        transactions.gate.set()
        assert await asyncio.gather(gone, last) == [VERIFIED] * 2
        await asyncio.sleep(0.01)
        assert transactions.requests == [["a", "b", "c"]]

    tell(story, OTHER)


def test_waiting_callers_are_answered_when_the_broker_stops() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.gate.clear()
        asked = asyncio.ensure_future(verifier.verify(of("a")))
        await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(verifier.verify(of("b")))
        await asyncio.sleep(0.01)
        await verifier.close()
        lost = dict.fromkeys(PLACES, ErrorCode.network_exception)
        assert await asyncio.gather(asked, waiting) == [lost, lost]

    tell(story, OTHER)


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_partition_is_added_as_soon_as_the_transaction_before_has_ended(leader: int) -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.code = ErrorCode.concurrent_transactions
        adding = asyncio.ensure_future(verifier.verify(of(protocol=ADDS)))
        await asyncio.sleep(CONCURRENT_S / 2)
        assert not adding.done()
        transactions.code = ErrorCode.none
        began = asyncio.get_running_loop().time()
        assert await adding == VERIFIED
        assert asyncio.get_running_loop().time() - began < CONCURRENT_S / 2

    tell(story, leader)


def test_a_client_of_the_first_protocol_waits_out_the_end_of_its_transaction_itself() -> None:
    async def story(verifier: TransactionVerifier, transactions: ScriptedTransactions) -> None:
        transactions.code = ErrorCode.concurrent_transactions
        assert await verifier.verify(of()) == dict.fromkeys(PLACES, ErrorCode.concurrent_transactions)
        assert len(transactions.asked) == 1

    tell(story)


@pytest.mark.parametrize("protocol", [FIRST, ABORTABLE, ADDS])
def test_a_retriable_refusal_has_a_code_that_producers_know(protocol: TransactionProtocol) -> None:
    for code in (
        ErrorCode.network_exception,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    ):
        assert for_produce(code, protocol) is ErrorCode.not_enough_replicas
    concurrent = ErrorCode.concurrent_transactions if protocol is ADDS else ErrorCode.not_enough_replicas
    assert for_produce(ErrorCode.concurrent_transactions, protocol) is concurrent
    for code in (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_epoch, ErrorCode.transaction_abortable):
        assert for_produce(code, protocol) is code
