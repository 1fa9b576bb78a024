"""Scaling with consumers at the end of one partition: end-to-end latency at a steady produce rate."""

import select
import struct
import time
from dataclasses import dataclass, field

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import (
    RECORD_BYTES,
    TOPIC,
    BenchPlace,
    allow_many_files,
    create_topic_on,
    end_offset,
)
from cordwood.bench.growth.wire import BlockingClient, FetchFrame, ProduceFrame
from cordwood.bench.machine import cpu_seconds
from cordwood.chaos.live.figures import quantile
from cordwood.storage.records import Record, encode

COUNTS = (1, 10, 100, 500)
RATE = 1000
"""Records a second, each in a request of its own."""
SECONDS = 15.0
P99_MAX_MS = 100.0
WAIT_MS = 500
GRACE_S = 5.0
"""The time that the last records have to arrive."""
_DUE = struct.Struct(">d")
# A batch ends with the value, which begins with its due time, and a byte that says that there are no headers.
_FILLER = bytes(RECORD_BYTES - _DUE.size)
_BEHIND_DUE = len(_FILLER) + 1


@dataclass(slots=True)
class TailResult:
    """The consumers' results. Latencies count from the time when a record was due, not when it was sent."""

    seconds: float
    latencies_ms: list[float] = field(default_factory=list)
    missing: int = 0

    @property
    def delivered(self) -> int:
        return len(self.latencies_ms)


class _Consumer:
    """One connection with one Fetch always in flight."""

    def __init__(self, address: str, offset: int) -> None:
        self.client = BlockingClient(address, None)
        self._offset = offset
        self._request = FetchFrame(TOPIC, 0, wait_ms=WAIT_MS)
        self._batch: struct.Struct | None = None
        self._ask()

    def readable(self, tailed: TailResult) -> None:
        """Receive a whole answer, add the latencies of its records, and fetch from the next offset."""
        batches = self._request.batches_in(self.client.receive_frame())
        if len(batches):
            now = time.time()
            if self._batch is None:
                size = 12 + int.from_bytes(batches[8:12], "big")
                self._batch = struct.Struct(f">{size - _BEHIND_DUE - _DUE.size}xd{_BEHIND_DUE}x")
            tailed.latencies_ms += [(now - due) * 1000 for (due,) in self._batch.iter_unpack(batches)]
            self._offset = int.from_bytes(batches[:8], "big") + len(batches) // self._batch.size
        self._ask()

    def _ask(self) -> None:
        self.client.socket.sendall(self._request.at(self._offset))


def tail(address: str, consumers: int, rate: int, seconds: float) -> TailResult:
    """Produce `rate` records a second to partition 0 for `seconds`. Return each consumer's latency of each record.

    Raises RequestFailed, OSError.
    """
    offset = end_offset(address)
    tailed, poll = TailResult(seconds), select.epoll()
    members = [_Consumer(address, offset) for _ in range(consumers)]
    by_fd = {member.client.socket.fileno(): member for member in members}
    producer = BlockingClient(address, None)
    try:
        for fd in (*by_fd, producer.socket.fileno()):
            poll.register(fd, select.EPOLLIN)
        records = round(rate * seconds)
        began, sent = time.time(), 0
        until = began + seconds + GRACE_S
        while tailed.delivered < records * consumers and (now := time.time()) < until:
            while sent < records and began + sent / rate <= now:
                producer.socket.sendall(_request(began + sent / rate))
                sent += 1
            for fd, _ in poll.poll(1 / rate):
                member = by_fd.get(fd)
                if member is None:
                    producer.receive_frame()
                else:
                    member.readable(tailed)
    finally:
        poll.close()
        for client in (producer, *(member.client for member in members)):
            client.close()
    tailed.missing = records * consumers - tailed.delivered
    return tailed


def _request(due: float) -> bytes:
    batch = encode([Record(0, int(due * 1000), None, _DUE.pack(due) + _FILLER)])
    return ProduceFrame(TOPIC, 0, batch).frame


def measure(place: BenchPlace) -> Area:
    """Measure each count. Consumers and producer share one process, so that the broker has a core of two to itself."""
    allow_many_files()
    area = Area("consumers", "consumers of one partition")
    for count in COUNTS:
        place.say(f"  {count:,} consumers")
        with place.broker(f"consumers-{count}") as broker:
            create_topic_on(broker.address, 1)
            tail(broker.address, count, RATE, 1.0)
            before = cpu_seconds([broker.pid])
            tailed = tail(broker.address, count, RATE, place.seconds(SECONDS))
            cpu_s = cpu_seconds([broker.pid]) - before
        why = "One loop serves them in turn: each waits for the others' answers to be sent."
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            area.curve(f"end to end, {name}", "ms", why).add(count, quantile(tailed.latencies_ms, share))
        area.curve("broker, for each record that a consumer got", "µs of CPU").add(
            count, cpu_s / tailed.delivered * 1e6
        )
        why = "Every consumer is to be answered."
        area.curve("broker", "% of a core", why).add(count, cpu_s / tailed.seconds * 100)
        if tailed.missing:
            area.notes.append(f"{tailed.missing:,} of the records did not reach all of {count} consumers in time.")
    area.promise(f"end to end p99, {COUNTS[-1]} consumers", quantile(tailed.latencies_ms, 0.99), P99_MAX_MS, "ms")
    area.promise(f"records that did not arrive, {COUNTS[-1]} consumers", tailed.missing, 0, "records")
    return area
