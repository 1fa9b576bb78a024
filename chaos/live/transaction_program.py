"""Program: a transactional client. Each transaction is a transfer, some other records, and the offset of its orders."""

import math
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from cordwood.chaos import transfers
from cordwood.chaos.history import Outcome, content_of, value_of
from cordwood.chaos.live.client_rows import (
    NONE,
    SENDS,
    TRANSACTIONS,
    TRANSACTIONS_SUFFIX,
    SendKind,
    SendRow,
    Tail,
    TransactionKind,
    TransactionRow,
    pack_send,
    pack_transaction,
)
from cordwood.chaos.live.run_end import end_with_run
from cordwood.chaos.live.transactional_producers import (
    FirstProtocolProducer,
    MustAbort,
    SecondProtocolProducer,
    SessionLost,
    TransactionalProducer,
    committed_offset,
    orders_of,
    transactional_id_of,
)
from cordwood.chaos.transfers import TransferEntry, TransferOrders
from cordwood.chaos.workload import PAYLOAD_BYTES_MIN, encode
from cordwood.storage.records import Record

NS_PER_MS = 1_000_000
PAYLOAD_BYTES_MAX = 200
OTHERS_MAX = 3
"""The most records of a transaction besides the two of its transfer."""
ABORTED_SHARE = 0.1
"""The share of transactions that their client aborts."""
DEATH_WITHIN_S = 0.2
"""A client that kills itself does so within this time from the start of a transaction."""
RETURN_S = (0.0, 12.0)
"""The time after which a dead client comes back: before the timeout of its transaction, or after it."""
RETRY_S = 0.1


class ProtocolVersion(Enum):
    """The transaction protocol of a client."""

    FIRST = "1"
    SECOND = "2"


def main(
    bootstrap: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    partitions: Annotated[int, typer.Option()],
    rows: Annotated[Path, typer.Option(help="The file for the sends; the one for transactions is beside it.")],
    number: Annotated[int, typer.Option(help="Which transactional client this is.")],
    producer: Annotated[int, typer.Option(help="The producer number in the values of its records.")],
    seed: Annotated[int, typer.Option(help="Decides what is sent.")],
    per_second: Annotated[int, typer.Option(help="Transactions to run.")],
    timeout_ms: Annotated[int, typer.Option(help="The transaction timeout.")],
    protocol: Annotated[ProtocolVersion, typer.Option()],
    life: Annotated[float, typer.Option(help="Mean seconds until the client kills itself; 0: never.")] = 0.0,
    setting: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for librdkafka.")] = None,
) -> None:
    """Run transactions until standard input ends. A client that kills itself comes back as another process."""
    orders, name = orders_of(topic, number), transactional_id_of(topic, number)
    settings = dict(each.split("=", 1) for each in setting or ())

    def opened() -> TransactionalProducer:
        if protocol is ProtocolVersion.FIRST:
            return FirstProtocolProducer(bootstrap, topic, name, orders, timeout_ms, settings)
        return SecondProtocolProducer(bootstrap, topic, name, orders, timeout_ms)

    def live() -> None:
        # Here, since a fork has no threads. A process without a child starts the next one when the run has ended.
        end_with_run()
        log = _Log(rows, producer, timeout_ms)
        rng = random.Random(f"{seed}/{number}/{log.transactions}")
        client = _Client(
            log,
            TransferOrders(f"{seed}/{number}", partitions),
            partitions,
            rng,
            interval_s=1 / per_second,
            dies_at_s=time.monotonic() + rng.expovariate(1 / life) if life else math.inf,
        )
        while not client.run(opened(), lambda: committed_offset(bootstrap, orders)):
            time.sleep(RETRY_S)

    if life:
        _come_back(live, random.Random(f"{seed}/{number}"))
    else:
        live()


def _come_back(live: Callable[[], None], rng: random.Random) -> None:
    """Run `live` in a child, and again in another one some time after each that was killed."""
    while True:
        child = os.fork()
        if not child:
            live()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            sys.exit(code)
        _is_over(rng.uniform(*RETURN_S))


def _is_over(seconds: float = 0.0) -> bool:
    """Return whether standard input has ended; wait for that up to `seconds`."""
    return bool(select.select([sys.stdin], [], [], max(seconds, 0))[0])


class _Log:
    """The rows of one client, which go on over its lives. A row is in the file before what it is about happens."""

    def __init__(self, rows: Path, producer: int, timeout_ms: int) -> None:
        self._producer, self.timeout_ms = producer, timeout_ms
        beside = rows.with_suffix(TRANSACTIONS_SUFFIX)
        self._next_sequence = int((Tail(rows, SENDS).new_rows()["kind"] == SendKind.INVOKED).sum())
        self.transactions = int((Tail(beside, TRANSACTIONS).new_rows()["kind"] == TransactionKind.BEGUN).sum())
        self._sends, self._transactions = rows.open("ab", buffering=0), beside.open("ab", buffering=0)

    def write(self, kind: TransactionKind, first: int = NONE, second: int = NONE) -> None:
        """Write a row about the latest transaction, or about the session."""
        row = TransactionRow(kind, self.transactions - 1, first, second, time.monotonic_ns())
        self._transactions.write(pack_transaction(*row))

    def begun(self) -> int:
        """Write that a transaction begins. Return its number."""
        self.transactions += 1
        self.write(TransactionKind.BEGUN)
        return self.transactions - 1

    def invoked(self, partition: int, key: bytes, size_bytes: int, entry: TransferEntry | None) -> "_Sent":
        """Write that the next record is sent. Return it."""
        sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
        headers = ((transfers.HEADER, transfers.encode(entry)),) if entry else ()
        timestamp = time.time_ns() // NS_PER_MS
        record = Record(0, timestamp, key, encode(value_of(self._producer, sequence), size_bytes), headers)
        row = SendRow(
            SendKind.INVOKED,
            sequence,
            partition,
            NONE,
            0,
            time.monotonic_ns(),
            time.monotonic_ns(),
            content_of(key, headers, timestamp),
            self.transactions - 1,
        )
        self._sends.write(pack_send(*row))
        return _Sent(self._sends.write, row, record)


class _Sent:
    """A record that is sent, and the row of its answer."""

    def __init__(self, write: Callable[[bytes], object], row: SendRow, record: Record) -> None:
        self._write, self._row, self.record = write, row, record

    def answered(self, code: int, offset: int) -> None:
        kind = SendKind.GIVEN_UP if code else SendKind.ACKNOWLEDGED
        row = self._row._replace(kind=kind, offset=offset, error=code, at_ns=time.monotonic_ns())
        self._write(pack_send(*row))


class _Client:
    """One life of a client."""

    def __init__(
        self,
        log: _Log,
        orders: TransferOrders,
        partitions: int,
        rng: random.Random,
        *,
        interval_s: float,
        dies_at_s: float,
    ) -> None:
        self._log, self._orders, self._partitions, self._rng = log, orders, partitions, rng
        self._interval_s, self._dies_at_s = interval_s, dies_at_s

    def run(self, producer: TransactionalProducer, offset_of: Callable[[], int]) -> bool:
        """Run transactions until standard input ends. Return False where the producer cannot go on before that."""
        try:
            self._begin(producer, offset_of)
            while not _is_over(self._interval_s):
                self._transact(producer)
        except (MustAbort, SessionLost) as lost:
            typer.echo(f"{time.monotonic():.3f}: {type(lost).__name__}: {lost}", err=True)
            return False
        finally:
            producer.close()
        return True

    def _begin(self, producer: TransactionalProducer, offset_of: Callable[[], int]) -> None:
        """Begin a session, and go to the first order that no transaction has applied."""
        self._log.write(TransactionKind.INITIALIZING, self._log.timeout_ms)
        self._log.write(TransactionKind.INITIALIZED, *producer.begin_session())
        invoked_ns = time.monotonic_ns()
        offset = offset_of()
        self._log.write(TransactionKind.OFFSET_READ, offset, invoked_ns)
        self._orders.seek(offset)

    def _transact(self, producer: TransactionalProducer) -> None:
        """Apply the next order in a transaction. Raises SessionLost where its outcome is unknown."""
        if time.monotonic() > self._dies_at_s:
            delay_s = self._rng.uniform(0, DEATH_WITHIN_S)
            threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        number, order = self._log.begun(), self._orders.next
        is_commit = self._rng.random() >= ABORTED_SHARE
        is_end_asked = False
        try:
            producer.begin()
            self._send(producer, number)
            self._log.write(TransactionKind.OFFSET_SENT, order, order + 1)
            producer.send_offset(order + 1)
            self._log.write(TransactionKind.COMMITTING if is_commit else TransactionKind.ABORTING)
            is_end_asked = True
            producer.end(is_commit=is_commit)
        except MustAbort:
            if not is_end_asked:
                self._log.write(TransactionKind.ABORTING)
            producer.end(is_commit=False)
            self._log.write(TransactionKind.ENDED, Outcome.FAIL if is_end_asked and is_commit else Outcome.OK)
            return
        self._log.write(TransactionKind.ENDED, Outcome.OK)
        if is_commit:
            self._orders.seek(order + 1)

    def _send(self, producer: TransactionalProducer, number: int) -> None:
        """Send the records of a transaction in a random order, and wait for the answers."""
        rows: list[tuple[int, bytes, TransferEntry | None]] = [
            (self._orders.partition_of(entry.account), b"account-%d" % entry.account, entry)
            for entry in self._orders.entries(number)
        ]
        others = self._rng.randint(0, OTHERS_MAX)
        rows += ((self._rng.randrange(self._partitions), b"other", None) for _ in range(others))
        self._rng.shuffle(rows)
        for partition, key, entry in rows:
            sent = self._log.invoked(partition, key, self._rng.randint(PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX), entry)
            producer.send(partition, sent.record, sent.answered)
        producer.flush()


if __name__ == "__main__":
    typer.run(main)
