"""`kafka-transactions` on open transactions: what it shows, and how it ends them."""

from pathlib import Path

from brokers import QUIET, Brokers
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import JavaTools

WAIT_S = 60.0
TIMEOUT_MS = 600_000
"""No transaction here ends by its timeout."""


class OpenTransaction:
    """A transaction with one record in partition 0 of a topic of its own."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.name = name
        admin = AdminClient({**QUIET, "bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic(name, 1, brokers.count)])[name].result(WAIT_S)
        settings = {**QUIET, "bootstrap.servers": brokers.bootstrap, "transactional.id": name}
        self._producer = Producer({**settings, "transaction.timeout.ms": TIMEOUT_MS})
        self._producer.init_transactions(WAIT_S)
        self._producer.begin_transaction()
        self._producer.produce(name, b"never committed", partition=0)
        assert self._producer.flush(WAIT_S) == 0
        self._consumer = Consumer(
            {**QUIET, "bootstrap.servers": brokers.bootstrap, "group.id": name, "isolation.level": "read_committed"}
        )

    def last_stable_offset(self) -> int:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(self.name, 0), WAIT_S)
        return end

    def commit_is_refused(self) -> bool:
        try:
            self._producer.commit_transaction(WAIT_S)
        except KafkaException:
            return True
        return False


def open_transactions_are_shown_and_ended(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """List and describe an open transaction, which hangs nowhere; abort it in its partition; end it by its id."""
    bootstrap = ["--bootstrap-server", brokers.bootstrap]
    name = f"{place.name}-{tools.version}"
    opened = OpenTransaction(brokers, name)
    partition = ["--topic", name, "--partition", "0"]

    (listed,) = [row for row in tools.table(*bootstrap, "list") if row["TransactionalId"] == name]
    (described,) = tools.table(*bootstrap, "describe", "--transactional-id", name)
    (producer,) = tools.table(*bootstrap, "describe-producers", *partition)
    assert listed["TransactionState"] == described["TransactionState"] == "Ongoing"
    assert listed["Coordinator"] == described["CoordinatorId"]
    assert listed["ProducerId"] == described["ProducerId"] == producer["ProducerId"]
    assert described["ProducerEpoch"] == producer["ProducerEpoch"]
    assert (described["TransactionTimeoutMs"], described["TopicPartitions"]) == (str(TIMEOUT_MS), f"{name}-0")
    assert 0 <= int(described["TransactionDurationMs"]) < TIMEOUT_MS
    assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("0", "0")

    assert tools.table(*bootstrap, "find-hanging", "--topic", name, "--max-transaction-timeout", "0") == []
    assert opened.last_stable_offset() == 0
    tools.table(*bootstrap, "abort", *partition, "--start-offset", "0")
    (producer,) = tools.table(*bootstrap, "describe-producers", *partition)
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert opened.last_stable_offset() == 2

    if tools.version < "4":
        return
    tools.table(*bootstrap, "forceTerminateTransaction", "--transactionalId", name)
    (described,) = tools.table(*bootstrap, "describe", "--transactional-id", name)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Empty", "")
    assert opened.commit_is_refused()


def hanging_transactions_are_found_and_ended(tools: JavaTools, brokers: Brokers, place: Path) -> None:
    """Find and abort a transaction that no coordinator knows, since the coordinators' topic is lost."""
    bootstrap = ["--bootstrap-server", brokers.bootstrap]
    name = f"{place.name}-{tools.version}"
    opened = OpenTransaction(brokers, name)
    brokers.lose("__transaction_state")
    find = [*bootstrap, "find-hanging", "--topic", name, "--max-transaction-timeout", "0"]
    (found,) = tools.table(*find)
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (name, "0", "0")
    assert opened.last_stable_offset() == 0
    whole = ["--producer-id", found["ProducerId"], "--producer-epoch", found["ProducerEpoch"]]
    tools.table(*bootstrap, "abort", "--topic", name, "--partition", "0", *whole, "--coordinator-epoch", "0")
    assert tools.table(*find) == []
    assert opened.last_stable_offset() == 2
