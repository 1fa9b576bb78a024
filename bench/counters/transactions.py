"""A producer in the simulator that commits one transaction after the other, by either protocol of transactions."""

import asyncio
import sys
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from cordwood.bench.counters.cluster import TIMEOUT_S, check_produced
from cordwood.chaos.history import ACKS_ALL
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import Address, SimulatedClient, duration
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import TRANSACTIONAL
from cordwood.storage.records import Record, encode
from cordwood.storage.types import ProducerIdAndEpoch

ID = "transactions"
_TRANSACTION = 1
"""The kind of a coordinator's key."""


class TransactionRun:
    """Transactions of one batch in partition 0. The broker is the only one.

    By the first protocol the producer adds the partition, and keeps its epoch. By the second one (KIP-890) its first
    batch adds the partition, and each transaction has an epoch of its own.
    """

    def __init__(self, client: SimulatedClient, broker: Address, *, is_v2: bool) -> None:
        self._client, self._broker, self._is_v2 = client, broker, is_v2
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._sequence = 0

    async def begin(self) -> None:
        """Get a producer id; the broker creates `__transaction_state` meanwhile."""
        await self._ask(ApiKey.FIND_COORDINATOR, 4, key_type=_TRANSACTION, coordinator_keys=(ID,))
        async with asyncio.timeout(TIMEOUT_S):
            while (answer := await self._initialize()).error_code is not ErrorCode.none:
                await asyncio.sleep(0.1)
        self._producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def commit(self, value_bytes: int) -> None:
        """Produce a batch in a transaction, and commit it. Raises AssertionError for an error."""
        producer_id, epoch = self._producer
        records = encode(
            [Record(0, BEGAN_MS, None, b"v" * value_bytes)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence,
            attributes=TRANSACTIONAL,
        )
        if not self._is_v2:
            await self._add()
        check_produced(await self._produce(records))
        ended = await self._ask(
            ApiKey.END_TXN,
            5 if self._is_v2 else 3,
            transactional_id=ID,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        assert ended.error_code is ErrorCode.none, ended
        if self._is_v2:
            self._producer = ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch)
        else:
            self._sequence += 1

    async def _initialize(self) -> Any:
        return await self._ask(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=ID,
            transaction_timeout=duration(TIMEOUT_S),
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
        )

    async def _add(self) -> None:
        version = 3
        topic = _class(ApiKey.ADD_PARTITIONS_TO_TXN, version, "AddPartitionsToTxnTopic")
        added = await self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=(topic(name=self._client.topic, partitions=(0,)),),
        )
        for answered in added.results_by_topic_v3_and_below:
            for partition in answered.results_by_partition:
                assert partition.partition_error_code is ErrorCode.none, partition

    async def _produce(self, records: bytes) -> Any:
        version = 12 if self._is_v2 else 11
        data = _class(ApiKey.PRODUCE, version, "PartitionProduceData")(index=0, records=records)
        topic = _class(ApiKey.PRODUCE, version, "TopicProduceData")(name=self._client.topic, partition_data=(data,))
        return await self._ask(
            ApiKey.PRODUCE,
            version,
            transactional_id=ID,
            acks=ACKS_ALL,
            timeout=duration(TIMEOUT_S),
            topic_data=(topic,),
        )

    async def _ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        return await self._client.ask(self._broker, load_request_schema(api, version)(**fields))


def _class(api: ApiKey, version: int, name: str) -> Any:
    """Return a nested struct of a request, by the name of its class."""
    return vars(sys.modules[load_request_schema(api, version).__module__])[name]
