"""Transaction coordinator: requests to the transactional ids of this broker, and their replies."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.cluster.transactions.states import TransactionState
from cordwood.storage.types import ProducerIdAndEpoch, TopicPartition


class TransactionDescription(NamedTuple):
    """One transactional id, as an operator sees it. Times are wall-clock milliseconds; -1 without a transaction."""

    transactional_id: str
    state: TransactionState
    producer: ProducerIdAndEpoch
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class TransactionListing(NamedTuple):
    """A row of the list of transactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionCoordinator:
    """All transactional ids of this broker.

    Methods raise Refused for an id that is not, not yet or no longer served here. `connection` is the number of the
    client's connection, which rises with each accepted one; 0 if it is unknown. `is_v2` says that the client speaks the
    second version of the protocol (KIP-890).
    """

    async def place(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` of an id; its leader is the id's coordinator."""
        raise NotImplementedError

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        connection: int = 0,
        is_v2: bool = False,
    ) -> ProducerIdAndEpoch:
        """Return the id's producer id with a new epoch, which fences all earlier producers."""
        raise NotImplementedError

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        connection: int = 0,
        is_v2: bool = False,
    ) -> None:
        """Add partitions to the transaction, which begins with the first. Return once they are durable."""
        raise NotImplementedError

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition `none` if it is in the ongoing transaction, else TRANSACTION_ABORTABLE."""
        raise NotImplementedError

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        is_v2: bool,
        connection: int = 0,
    ) -> ProducerIdAndEpoch:
        """Decide the transaction. Return the producer's id and epoch for the next one, once the decision is durable."""
        raise NotImplementedError

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Return one transactional id. Raises Refused(TRANSACTIONAL_ID_NOT_FOUND)."""
        raise NotImplementedError

    def list(
        self,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str = "",
    ) -> Iterator[TransactionListing]:
        """Return the transactional ids that match all filters. Raises Refused while some are loading."""
        raise NotImplementedError
