"""Simulated consumers by assignment: from the start of a partition on, they write down all that they are given."""

from kio.schema.errors import ErrorCode

from cordwood.chaos.history import BY_FOLLOWER, UNKNOWN, HistoryBuilder, content_of
from cordwood.chaos.sim.kafka import Client, duration, message, part
from cordwood.chaos.sim.producing import Alarm
from cordwood.chaos.workload import decode as value_in
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.storage.batch import peek, split
from cordwood.storage.errors import CorruptBatch
from cordwood.storage.records import decode

ANY_RACK = "somewhere"
"""Followers serve only those who say where they are."""
MAX_WAIT_S = 1.0
FETCH_BYTES = 64 << 10


class Reader:
    """One partition, as one consumer reads it."""

    def __init__(
        self,
        client: Client,
        number: int,
        partition: int,
        history: HistoryBuilder,
        alarm: Alarm,
        *,
        any_replica: bool,
    ) -> None:
        self.client, self.partition = client, partition
        self._number, self._history, self._alarm, self._any_replica = number, history, alarm, any_replica
        self.position = 0
        self._polls = 0

    def begin(self, position: int) -> None:
        """Read on from there."""
        self.position = position
        self._history.assign(self._number, self.partition, self.client.now_ns)

    async def run(self) -> None:
        """For ever."""
        self.begin(0)
        while True:
            if not await self.poll():
                await self.client.refresh_patiently()

    async def poll(self) -> bool:
        """Ask once. False where nobody could tell, and somebody else is to be asked."""
        client = self.client
        address = client.any_replica(self.partition) if self._any_replica else client.leader(self.partition)
        if address is None:
            return False
        asked_ns, epoch = client.now_ns, BY_FOLLOWER if self._any_replica else client.leader_epochs[self.partition]
        try:
            answer = await client.ask(address, self._request())
        except OSError:
            return False
        if answer.error_code is not ErrorCode.none or not answer.responses:
            return False
        told = answer.responses[0].partitions[0]
        if told.error_code is not ErrorCode.none:
            return False
        self._history.watermark(
            self._number,
            self.partition,
            # A leader that has only just begun says nothing of it.
            int(told.high_watermark),
            int(told.log_start_offset),
            client.now_ns,
            invoked_ns=asked_ns,
            leader_epoch=epoch,
            last_stable=int(told.last_stable_offset),
            read_end=self._take(bytes(told.records or b"")),
        )
        return True

    def _request(self) -> object:
        partition = part(
            ApiKey.FETCH,
            "FetchPartition",
            partition=self.partition,
            current_leader_epoch=-1 if self._any_replica else self.client.leader_epochs[self.partition],
            fetch_offset=self.position,
            partition_max_bytes=FETCH_BYTES,
        )
        topic = part(ApiKey.FETCH, "FetchTopic", topic=self.client.topic, partitions=(partition,))
        return message(
            ApiKey.FETCH,
            max_wait=duration(MAX_WAIT_S),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=(topic,),
            forgotten_topics_data=(),
            rack_id=ANY_RACK if self._any_replica else "",
        )

    def _take(self, data: bytes) -> int:
        """Whole batches, of which the first may begin before what was asked for. Returns their end, or UNKNOWN."""
        self._polls += 1
        try:
            batches = [(peek(batch), decode(batch)) for batch in split(data)]
        except CorruptBatch as corrupt:
            self._alarm("corrupt-read", f"{self.client.name} was sent {corrupt} in partition {self.partition}")
            return UNKNOWN
        now_ns = self.client.now_ns
        for header, records in batches:
            self._history.batch(self.partition, header.base_offset, header.end, header.leader_epoch, now_ns)
            for record in records:
                if record.offset >= self.position:
                    self._history.poll(
                        self._number,
                        self.partition,
                        record.offset,
                        value_in(record.value),
                        now_ns,
                        self._polls,
                        content_of(record.key, record.headers, record.timestamp),
                    )
                    self.position = record.offset + 1
        return batches[-1][0].end if batches else UNKNOWN
