"""Transaction coordinators: transactions described, listed and ended by a process that did not begin them (KIP-664)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, Self, TypeVar

from kio.schema.describe_transactions.v0 import DescribeTransactionsRequest
from kio.schema.end_txn.v3 import EndTxnRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import FindCoordinatorRequest
from kio.schema.list_transactions.v0 import ListTransactionsRequest

from cordwood.spark.client.backoff import Backoff
from cordwood.spark.client.cluster import ClusterReader, check_code
from cordwood.spark.client.connection import BrokerConnection, ConnectionFailed
from cordwood.spark.client.settings import Address, ClientSettings
from cordwood.storage.types import ProducerIdAndEpoch

OF_TRANSACTIONS = 1
ONGOING, DECIDED = "Ongoing", ("PrepareCommit", "PrepareAbort")
NEEDED = dict.fromkeys(
    (FindCoordinatorRequest, DescribeTransactionsRequest, ListTransactionsRequest, EndTxnRequest), "3.0"
)

ENDED = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
"""Refusals of EndTxn for a transaction that has ended already: in the other way, or before a later one."""

T = TypeVar("T")


class OngoingTransaction(NamedTuple):
    """An ongoing transaction. Its start is in ms of the coordinator's clock."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    start_ms: int
    timeout_ms: int


class SparkCoordinators:
    """The coordinators of a cluster, asked with retries up to `retry_timeout_ms`. Use it for one commit or task.

    A coordinator refuses EndTxn on a connection that is older than the connection of the transaction's producer. So the
    connections are not those of the pool, and begin after the transactions.
    """

    def __init__(self, settings: ClientSettings) -> None:
        """Take the settings. Do not connect yet."""
        self._settings = settings
        self._cluster = ClusterReader(settings)
        self._connections: dict[Address, BrokerConnection] = {}
        self._coordinators: dict[str, Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()

    def ongoing(self, transactional_id: str) -> OngoingTransaction | None:
        """Return the ongoing transaction of a transactional id."""
        what = f"describe the transaction of {transactional_id}"
        return self._patiently(what, lambda: self._describe([transactional_id]).get(transactional_id))

    def all_ongoing(self, is_wanted: Callable[[str], bool]) -> dict[str, OngoingTransaction]:
        """Return the ongoing transactions of the cluster whose transactional id is wanted, by it."""
        return self._patiently(
            "describe the ongoing transactions", lambda: self._describe(list(filter(is_wanted, self._list([ONGOING]))))
        )

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> bool:
        """End a transaction. Return False if it has ended already, in the other way or before a later one."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        def attempt() -> bool:
            [address] = self._by_coordinator([transactional_id])
            code = self._connection(address).ask(request).error_code
            if code in ENDED:
                return False
            check_code(code, f"to end the transaction of {transactional_id}")
            return True

        return self._patiently(f"end the transaction of {transactional_id}", attempt)

    def wait_for_markers(self, transactional_ids: Collection[str]) -> None:
        """Wait until the transactions that were ended are complete: from then on, readers get the committed records."""

        def attempt() -> None:
            incomplete = set(transactional_ids).intersection(self._list(DECIDED))
            if incomplete:
                raise ConnectionFailed(f"the markers of {min(incomplete)} are not written")

        if transactional_ids:
            self._patiently("complete the transactions", attempt)

    def _describe(self, transactional_ids: Collection[str]) -> dict[str, OngoingTransaction]:
        found = {}
        for address, asked in self._by_coordinator(transactional_ids).items():
            answer = self._connection(address).ask(DescribeTransactionsRequest(transactional_ids=tuple(asked)))
            for each in answer.transaction_states:
                if each.error_code is ErrorCode.transactional_id_not_found:
                    continue
                check_code(each.error_code, f"to describe {each.transactional_id}")
                if each.transaction_state == ONGOING:
                    found[each.transactional_id] = _open(each)
        return found

    def _list(self, states: Iterable[str]) -> list[str]:
        listed: list[str] = []
        for address in self._cluster.brokers():
            answer = self._connection(address).ask(ListTransactionsRequest(state_filters=tuple(states)))
            check_code(answer.error_code, f"to list the transactions of {address}")
            listed += [each.transactional_id for each in answer.transaction_states]
        return listed

    def _by_coordinator(self, transactional_ids: Collection[str]) -> dict[Address, list[str]]:
        unknown = tuple(each for each in transactional_ids if each not in self._coordinators)
        if unknown:
            self._find(unknown)
        grouped: dict[Address, list[str]] = defaultdict(list)
        for each in transactional_ids:
            grouped[self._coordinators[each]].append(each)
        return grouped

    def _find(self, transactional_ids: tuple[str, ...]) -> None:
        request = FindCoordinatorRequest(key_type=OF_TRANSACTIONS, coordinator_keys=transactional_ids)
        failures: list[str] = []
        for address in self._cluster.brokers():
            try:
                answer = self._connection(address).ask(request)
                break
            except ConnectionFailed as failure:
                failures.append(str(failure))
        else:
            raise ConnectionFailed("; ".join(failures) or "there are no brokers")
        for each in answer.coordinators:
            check_code(each.error_code, f"to find the coordinator of {each.key}")
            self._coordinators[each.key] = Address(each.host, each.port)

    def _connection(self, address: Address) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(address, self._settings, NEEDED)
        return self._connections[address]

    def _patiently(self, what: str, attempt: Callable[[], T]) -> T:
        backoff = Backoff(what, self._settings.retry_timeout_ms)
        while True:
            try:
                return attempt()
            except ConnectionFailed as failure:
                self._forget()
                backoff.wait(failure)

    def _forget(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._coordinators.clear()


def _open(described: Any) -> OngoingTransaction:
    return OngoingTransaction(
        described.transactional_id,
        ProducerIdAndEpoch(described.producer_id, described.producer_epoch),
        round(described.transaction_start_time.timestamp() * 1000),
        round(described.transaction_timeout.total_seconds() * 1000),
    )
