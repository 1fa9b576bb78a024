"""Transactions that exceed their timeout, and transactional ids that expire."""

import asyncio

from kio.schema.errors import ErrorCode
from transactions_fixture import ID, ONE, SECOND, TWO, TransactionsFixture, reported

from cordwood.cluster.coordination.topic import partition_of
from cordwood.cluster.transactions.formats import decode_key
from cordwood.cluster.transactions.states import TransactionState

S = TransactionState


@reported
async def test_a_transaction_that_exceeds_its_timeout_is_aborted() -> None:
    transactions = TransactionsFixture(sweep_interval_ms=1000)
    await transactions.init()
    await transactions.add(ONE)
    producer = transactions.producer
    began = asyncio.get_running_loop().time()
    await transactions.until_state(S.COMPLETE_ABORT)
    assert 60 <= asyncio.get_running_loop().time() - began <= 62
    assert transactions.markers() == [(ONE, "abort", 1)]
    assert transactions.coordinator.measures.timed_out == 1
    for work in (
        transactions.add(TWO),
        transactions.end("commit"),
        transactions.end("abort"),
        transactions.init(producer),
    ):
        assert await transactions.code_of(work) is ErrorCode.producer_fenced
    assert await transactions.init() == (1, 2)


@reported
async def test_the_timeout_runs_on_through_a_failover() -> None:
    transactions = TransactionsFixture(brokers=2)
    await transactions.init()
    await transactions.add(ONE)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(40)
    transactions.elect(SECOND)
    await transactions.loaded()
    await transactions.until_state(S.COMPLETE_ABORT)
    assert asyncio.get_running_loop().time() - began < 65


@reported
async def test_a_clock_that_goes_back_does_not_prolong_a_transaction() -> None:
    transactions = TransactionsFixture(sweep_interval_ms=1000)
    await transactions.init()
    await transactions.add(ONE)
    began = asyncio.get_running_loop().time()
    transactions.clock_jump_ms = -600_000
    await transactions.until_state(S.COMPLETE_ABORT)
    assert asyncio.get_running_loop().time() - began < 63


async def commit_slowly(transactions: TransactionsFixture) -> None:
    """Commit a transaction whose transition is being written until long after its timeout."""
    transactions.topic.hold()
    end = asyncio.ensure_future(transactions.end("commit"))
    await asyncio.sleep(200)
    transactions.topic.release()
    await end
    await transactions.until_state(S.COMPLETE_COMMIT)


@reported
async def test_the_timeout_leaves_a_transition_alone_that_is_being_written() -> None:
    transactions = TransactionsFixture()
    await transactions.init()
    await transactions.add(ONE)
    await commit_slowly(transactions)
    assert transactions.markers() == [(ONE, "commit", 0)]


@reported
async def test_those_that_time_out_beside_a_transition_that_is_being_written_end() -> None:
    transactions = TransactionsFixture(sweep_interval_ms=1000)
    beside = [name for name in map(str, range(100)) if partition_of(name, 4) == transactions.partition][:10]
    for name in (*beside, ID):
        await transactions.init(transactional_id=name)
        await transactions.add(ONE, transactional_id=name)
    await asyncio.sleep(59)
    # One that ends while the sweep is on its way.
    await commit_slowly(transactions)
    await transactions.until(lambda: all(transactions.state(name) is S.COMPLETE_ABORT for name in beside))


@reported
async def test_many_timeouts_share_writes() -> None:
    transactions = TransactionsFixture()
    names = [f"pay-{number}" for number in range(200)]
    for name in names:
        await transactions.init(transactional_id=name)
        await transactions.add(ONE, transactional_id=name)
    before = transactions.topic.appends
    await transactions.until(lambda: all(transactions.state(name) is S.COMPLETE_ABORT for name in names))
    assert transactions.topic.appends - before < 200 + 200 / 10


@reported
async def test_an_id_without_a_transaction_expires() -> None:
    transactions = TransactionsFixture(id_expiration_ms=100_000, sweep_interval_ms=1000, max_timeout_ms=10_000_000)
    await transactions.init(transactional_id="idle")
    await transactions.init(timeout_ms=10_000_000)
    await transactions.add(ONE)
    listed = {row.transactional_id for row in transactions.coordinator.list()}
    assert listed == {"idle", ID}
    assert sum(transactions.coordinator.counts().values()) == 2
    await asyncio.sleep(102)
    assert [row.transactional_id for row in transactions.coordinator.list() if row is not None] == [ID]
    assert sum(transactions.coordinator.counts().values()) == 1
    for index in range(4):
        records = transactions.topic.records(index)
        for record in records:
            if decode_key(record.key or b"") == "idle":
                assert record is records[-1] or record.value is not None
    await transactions.restart()
    assert [row.transactional_id for row in transactions.coordinator.list() if row is not None] == [ID]
