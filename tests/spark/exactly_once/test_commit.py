"""Commit of exactly-once writes: wherever a driver or a task stops, each row is committed once, or an error says so."""

from dataclasses import replace

import pytest
from confluent_kafka import Producer
from exactly_once import Query
from spark_scenario import Log

from cordwood.spark.client.coordinators import OngoingTransaction
from cordwood.spark.errors import NotWritten, PartlyWritten, Unavailable
from cordwood.spark.exactly_once.commit import check_open
from cordwood.spark.exactly_once.decisions import FIRST_OFFSETS, Decision, Decisions, readable_end
from cordwood.spark.exactly_once.sink import prepare
from cordwood.spark.exactly_once.writes import PreparedTransaction, WriteId
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition


@pytest.fixture
def query(log: Log) -> Query:
    return Query(log)


def test_rows_are_seen_once_the_driver_has_committed(query: Query) -> None:
    one, other = query.task(0, "a", "b"), query.task(0, "c", partition=1)
    assert query.written() == ["a", "b", "c"]
    assert query.committed() == []
    query.commit(0, one, other)
    assert query.committed() == ["a", "b", "c"]
    query.commit(1, query.task(1, "d"))
    assert query.committed() == ["a", "b", "c", "d"]
    assert query.open_transactions() == []


def test_a_batch_without_a_decision_is_what_its_second_run_has_written(query: Query) -> None:
    query.task(0, "a")
    query.task(0, "b", partition=1)
    query.commit(0, query.task(0, "a"), query.task(0, "b", partition=1))
    assert query.written() == ["a", "a", "b", "b"]
    assert query.committed() == ["a", "b"]
    assert query.open_transactions() == []


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_decision_is_completed_by_the_next_driver(query: Query, ended: int) -> None:
    query.decide_and_crash(0, query.task(0, "a"), query.task(0, "b", partition=1), ended=ended)
    query.commit(0, query.task(0, "a"), query.task(0, "b", partition=1))
    assert query.written() == ["a", "a", "b", "b"]
    assert query.committed() == ["a", "b"]
    query.commit(1, query.task(1, "c"))
    assert query.committed() == ["a", "b", "c"]


def test_a_decision_whose_ids_are_in_use_again_is_complete(query: Query) -> None:
    prepared = query.task(0, "a")
    query.decide_and_crash(0, prepared, ended=1)
    # Another process has the lease of the crashed one, and so the same transactional id.
    again = Producer({"bootstrap.servers": query.log.bootstrap, "transactional.id": prepared.transactional_id})
    again.init_transactions(15)
    query.commit(0, query.task(0, "a"))
    assert query.committed() == ["a"]


def test_only_the_attempts_that_spark_has_chosen_count(query: Query) -> None:
    chosen, speculative = query.task(0, "a"), query.task(0, "a")
    query.commit(0, chosen)
    assert not query.end(speculative, commit=True), "it is still open"
    assert query.committed() == ["a"]


def test_an_attempt_after_the_commit_is_aborted_by_the_next(query: Query) -> None:
    query.commit(0, query.task(0, "a"))
    late = query.task(0, "a")
    assert query.open_transactions() == [late.transactional_id]
    query.commit(1, query.task(1, "b", partition=1))
    assert query.open_transactions() == []
    assert query.committed() == ["a", "b"]


def test_an_earlier_driver_of_the_query_cannot_decide(query: Query) -> None:
    with Decisions(query.once, query.name) as earlier:
        stale = query.task(0, "a")
        query.commit(0, query.task(0, "a"))
        with pytest.raises(NotWritten, match="another driver has begun to commit"):
            earlier.decide(Decision(0, (stale,)))
    assert query.committed() == ["a"]


def test_a_transaction_that_was_aborted_before_the_decision_fails_the_whole_batch(query: Query) -> None:
    one, other = query.task(0, "a"), query.task(0, "b", partition=1)
    assert query.end(one, commit=False)
    with pytest.raises(NotWritten, match=r"nothing of version 0 of query-\d+ is committed: .* was aborted"):
        query.commit(0, one, other)
    query.abort(0, one, other)
    assert query.open_transactions() == []
    assert query.committed() == []


def test_a_decided_transaction_that_was_aborted_is_reported_by_every_later_run(query: Query) -> None:
    one, other = query.task(0, "a", "b"), query.task(0, "c", partition=1)
    query.decide_and_crash(0, one, other)
    assert query.end(one, commit=False)
    for _ in range(2):
        again = query.task(0, "a", "b"), query.task(0, "c", partition=1)
        with pytest.raises(PartlyWritten, match=r"2 of 3 records of version 0 .* are lost"):
            query.commit(0, *again)
        query.abort(0, *again)
    assert query.committed() == ["c"]
    assert query.open_transactions() == []


def test_an_abort_leaves_a_decided_batch_alone(query: Query) -> None:
    prepared = query.task(0, "a")
    query.decide_and_crash(0, prepared)
    query.abort(0, prepared)
    query.commit(0, query.task(0, "a"))
    assert query.committed() == ["a"]


def test_tasks_without_rows_have_no_transaction(query: Query) -> None:
    empty = prepare(query.options, query.once, WriteId(query.name, 0), iter([]))
    assert empty.transaction is None
    query.commit(0)
    query.commit(1, query.task(1, "a"))
    assert query.committed() == ["a"]


def test_a_checkpoint_that_is_older_than_the_topic_is_refused(query: Query) -> None:
    query.commit(0, query.task(0, "a"))
    query.commit(1, query.task(1, "b"))
    older = query.task(0, "a")
    with pytest.raises(NotWritten, match="version 1 is committed already: the checkpoint is older"):
        query.commit(0, older)
    query.abort(0, older)
    assert query.committed() == ["a", "b"]


def test_a_query_whose_earlier_commits_are_unknown_is_refused_unless_that_is_allowed(log: Log) -> None:
    strict, lenient = Query(log), Query(log, failOnMissingCommit="false")
    prepared = strict.task(7, "a")
    with pytest.raises(NotWritten, match=r"has no commit before version 7 .* set failOnMissingCommit to false"):
        strict.commit(7, prepared)
    lenient.commit(7, lenient.task(7, "a"))
    assert (strict.committed(), lenient.committed()) == ([], ["a"])


def test_a_decision_is_found_far_from_the_end_of_the_topic(log: Log) -> None:
    query, busy = Query(log), Query(log)
    query.decide_and_crash(0, query.task(0, "a"), ended=1)
    with Decisions(busy.once, busy.name) as decisions:
        for version in range(FIRST_OFFSETS):
            decisions.decide(Decision(version, ()))
    query.commit(0, query.task(0, "a"))
    assert query.committed() == ["a"]


def test_no_decision_is_missed_under_another_drivers_open_transaction(log: Log) -> None:
    commits = log.topic()
    query = Query(log, commitsTopic=commits)
    impatient = replace(query.once.client, retry_timeout_ms=300)
    other = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "other"})
    other.init_transactions(15)
    other.begin_transaction()
    other.produce(commits, b"undecided")
    other.flush(15)
    query.decide_and_crash(0, query.task(0, "a"))
    with pytest.raises(Unavailable, match="another driver has an open transaction"):
        readable_end(impatient, TopicPartition(commits, 0))
    other.abort_transaction(15)
    query.commit(0, query.task(0, "a"))
    assert query.committed() == ["a"]


def test_a_batch_is_not_decided_in_the_second_half_of_its_timeout() -> None:
    producer = ProducerIdAndEpoch(7, 0)
    prepared = PreparedTransaction("t", producer, 1, TopicPartition("topic", 0), 0)
    ongoing = {"t": OngoingTransaction("t", producer, start_ms=1_000, timeout_ms=60_000)}
    check_open(WriteId("q", 0), [prepared], ongoing, 31_000)
    with pytest.raises(NotWritten, match="more than half of transactionTimeoutMs, which is 60 s"):
        check_open(WriteId("q", 0), [prepared], ongoing, 31_001)
    ongoing["t"] = ongoing["t"]._replace(producer=ProducerIdAndEpoch(7, 1))
    with pytest.raises(NotWritten, match="the transaction t was aborted"):
        check_open(WriteId("q", 0), [prepared], ongoing, 1_000)
