"""Commit and abort of a write on the driver: decide once, then end the transactions of the tasks.

After a crash the next driver, which has the same version to commit, completes the commit. Without a decision, it
decides about the transactions of its own tasks. With one, it commits the transactions of that decision, and aborts
those of its own tasks, which have written the same rows again.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cordwood.columnar.columns import Column, Columns
from cordwood.columnar.errors import OffsetsGone, ReadError
from cordwood.columnar.ranges import Isolation, OffsetRange
from cordwood.spark.client.coordinators import OngoingTransaction, SparkCoordinators
from cordwood.spark.errors import NotWritten, PartlyWritten
from cordwood.spark.exactly_once.decisions import Decision, Decisions
from cordwood.spark.exactly_once.transactional_ids import is_of_a_task
from cordwood.spark.exactly_once.writes import ExactlyOnceOptions, PreparedTransaction, WriteId
from cordwood.spark.range_reader import read_range

DECIDE_WITHIN = 0.5
"""The part of a transaction's timeout in which the decision must be made. The rest is for a restart of the driver."""

log = logging.getLogger(__name__)


def commit(options: ExactlyOnceOptions, write: WriteId, prepared: Sequence[PreparedTransaction]) -> None:
    """Commit a write once, whatever an earlier driver has done of it.

    Raises NotWritten if nothing is committed, PartlyWritten, ReadError.
    """
    with Decisions(options, write.name) as decisions, SparkCoordinators(options.client) as coordinators:
        last = decisions.last()
        _check_order(options, write, last)
        if last is not None and last.version == write.version:
            log.warning("%s was already decided; its %d transactions count", write, len(last.transactions))
            again = [each for each in prepared if each not in last.transactions]
            _complete(options, coordinators, write, last.transactions, again)
            return
        # Listed before the decision: until then, no task of a later version can have begun a transaction.
        ongoing = coordinators.all_ongoing(lambda each: is_of_a_task(each, write.name))
        check_open(write, prepared, ongoing, time.time() * 1000)
        decisions.decide(Decision(write.version, tuple(prepared)))
        winners = {each.transactional_id for each in prepared}
        losers = [each for each in ongoing.values() if each.transactional_id not in winners]
        _complete(options, coordinators, write, prepared, losers)


def abort(options: ExactlyOnceOptions, write: WriteId, prepared: Sequence[PreparedTransaction]) -> None:
    """Abort the transactions of a write that failed, unless they are decided. Spark also calls this if `commit` failed.

    If the decision cannot be read, the transactions are left to their timeout or to the next commit.
    """
    try:
        with Decisions(options, write.name) as decisions, SparkCoordinators(options.client) as coordinators:
            last = decisions.last()
            decided = last.transactions if last is not None and last.version == write.version else ()
            _abort(coordinators, [each for each in prepared if each not in decided])
    except (ReadError, NotWritten) as error:
        log.warning("the transactions of %s are left open: %s", write, error)


def _check_order(options: ExactlyOnceOptions, write: WriteId, last: Decision | None) -> None:
    """Check that the write is the last decided version, or a later one. Raises NotWritten."""
    if last is not None and last.version > write.version:
        raise NotWritten(
            f"{write} cannot be committed, because version {last.version} is committed already: the checkpoint is older"
            " than the topic. Use a new checkpoint, which starts at the offsets that you choose"
        )
    is_later = options.write is None and write.version > 0
    if last is None and is_later and options.fail_on_missing_commit:
        raise NotWritten(
            f"{options.commits_topic} has no commit before {write}: the query has run with at-least-once delivery, or"
            " its commits have expired. It may be written already; set failOnMissingCommit to false to write it"
        )


def check_open(
    write: WriteId, prepared: Iterable[PreparedTransaction], ongoing: Mapping[str, OngoingTransaction], now_ms: float
) -> None:
    """Check that all prepared transactions are open, and for long enough. Raises NotWritten."""
    for each in prepared:
        found = ongoing.get(each.transactional_id)
        if found is None or found.producer != each.producer:
            raise NotWritten(
                f"nothing of {write} is committed: the transaction {each.transactional_id} was aborted, probably by its"
                " timeout; set a larger transactionTimeoutMs, or write less at a time"
            )
        if now_ms - found.start_ms > DECIDE_WITHIN * found.timeout_ms:
            raise NotWritten(
                f"nothing of {write} is committed: its tasks took more than half of transactionTimeoutMs, which is"
                f" {found.timeout_ms / 1000:g} s, and the other half is kept for a restart of the driver; set a larger"
                " transactionTimeoutMs, or write less at a time"
            )


def _complete(
    options: ExactlyOnceOptions,
    coordinators: SparkCoordinators,
    write: WriteId,
    decided: Collection[PreparedTransaction],
    losers: Collection[PreparedTransaction | OngoingTransaction],
) -> None:
    """Commit all transactions of a decision, and abort others of the write, above which nothing could be read.

    Return once readers see the write. Raises PartlyWritten if a decided transaction was aborted.
    """
    ended = {each: coordinators.end(each.transactional_id, each.producer, commit=True) for each in decided}
    _abort(coordinators, losers)
    coordinators.wait_for_markers([each.transactional_id for each in (*decided, *losers)])
    lost = [each for each in decided if not ended[each] and not _is_visible(options, each)]
    if lost:
        raise PartlyWritten(
            f"{sum(each.records for each in lost)} of {sum(each.records for each in decided)} records of {write} are"
            f" lost, although their commit was decided: {len(lost)} of {len(decided)} transactions were aborted before"
            " the driver could end them, by their timeout or by an operator, and the others are committed. Compare the"
            " topics, and go on with a new checkpoint; a larger transactionTimeoutMs leaves more time for a restart"
        )


def _is_visible(options: ExactlyOnceOptions, transaction: PreparedTransaction) -> bool:
    """Return whether a transaction is committed, by one of its records."""
    client = replace(options.client, isolation=Isolation.READ_COMMITTED)
    wanted = OffsetRange(*transaction.witness, transaction.witness_offset, transaction.witness_offset + 1)
    try:
        return any(table.num_rows for table in read_range(client, wanted, Columns((Column.OFFSET,))))
    except OffsetsGone:
        return False


def _abort(coordinators: SparkCoordinators, transactions: Iterable[PreparedTransaction | OngoingTransaction]) -> None:
    for each in transactions:
        coordinators.end(each.transactional_id, each.producer, commit=False)
