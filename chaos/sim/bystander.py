"""A simulated client of the topics that are created and deleted; it detects values that no client wrote."""

import asyncio

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import UNKNOWN
from cordwood.chaos.sim.consumer import FETCH_BYTES
from cordwood.chaos.sim.host import BEGAN_MS
from cordwood.chaos.sim.kafka import SimulatedClient, duration, message, part
from cordwood.chaos.sim.producer import PRODUCE_TIMEOUT_S, Alarm
from cordwood.chaos.workload import decode as value_in
from cordwood.chaos.workload import encode as payload_of
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import split
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import Record, decode, encode

PAUSE_S = 0.1
PAYLOAD_BYTES_MAX = 600
RECORDS_MAX = 4
READ_SHARE = 0.4
ACKS = (-1, -1, 1, 0)


class SimulatedBystander:
    """The client of one topic. The client runs as long as the cluster, whether the topic exists or not."""

    def __init__(self, client: SimulatedClient, alarm: Alarm) -> None:
        self._client, self._alarm = client, alarm
        self._values = 0

    async def run(self) -> None:
        """Run forever."""
        client, rng = self._client, self._client.rng
        while True:
            await asyncio.sleep(rng.uniform(0.0, 2 * PAUSE_S))
            partitions = sorted(client.leader_epochs)
            is_done = bool(partitions)
            if partitions:
                ask = self._read if rng.random() < READ_SHARE else self._write
                is_done = await ask(rng.choice(partitions))
            if not is_done:
                await asyncio.sleep(5 * PAUSE_S)
                await client.refresh_patiently()

    async def _write(self, partition: int) -> bool:
        client, rng = self._client, self._client.rng
        address = client.leader(partition)
        if address is None:
            return False
        now_ms = BEGAN_MS + client.now_ns // 1_000_000
        count = rng.randint(1, RECORDS_MAX)
        values = range(self._values, self._values + count)
        self._values += count
        sizes = [rng.randint(16, PAYLOAD_BYTES_MAX) for _ in values]
        rows = [Record(at, now_ms, None, payload_of(values[at], size)) for at, size in enumerate(sizes)]
        data = part(ApiKey.PRODUCE, "PartitionProduceData", index=partition, records=encode(rows))
        topic = part(ApiKey.PRODUCE, "TopicProduceData", name=client.topic, partition_data=(data,))
        acks = rng.choice(ACKS)
        request = message(
            ApiKey.PRODUCE,
            transactional_id=None,
            acks=acks,
            timeout=duration(PRODUCE_TIMEOUT_S),
            topic_data=(topic,),
        )
        try:
            if acks == 0:
                await client.tell(address, request)
                return True
            answer = await client.ask(address, request)
        except OSError:
            return False
        return answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    async def _read(self, partition: int) -> bool:
        """Fetch at a random offset that may be in the log, and check the values."""
        client, rng = self._client, self._client.rng
        address = client.leader(partition)
        if address is None:
            return False
        row = part(
            ApiKey.FETCH,
            "FetchPartition",
            partition=partition,
            current_leader_epoch=client.leader_epochs[partition],
            fetch_offset=rng.randint(0, self._values),
            partition_max_bytes=FETCH_BYTES,
        )
        topic = part(ApiKey.FETCH, "FetchTopic", topic=client.topic, partitions=(row,))
        request = message(
            ApiKey.FETCH,
            max_wait=duration(0),
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            topics=(topic,),
            forgotten_topics_data=(),
            rack_id="",
        )
        try:
            answer = await client.ask(address, request)
        except OSError:
            return False
        reported = answer.responses[0].partitions[0]
        if reported.error_code is ErrorCode.offset_out_of_range:
            return True
        if reported.error_code is not ErrorCode.none:
            return False
        if reported.log_start_offset > 0:
            client.did("log-start-moved")
        self._check(partition, bytes(reported.records or b""))
        return True

    def _check(self, partition: int, data: bytes) -> None:
        where = f"{self._client.name} in partition {partition}"
        try:
            values = [value_in(record.value) for batch in split(data) for record in decode(batch)]
        except CorruptBatch as corrupt:
            self._alarm("corrupt-read", f"{where} was sent {corrupt}")
            return
        for value in values:
            if value == UNKNOWN or value >= self._values:
                self._alarm("unsent-read", f"{where} was given {value}, which was never sent")
