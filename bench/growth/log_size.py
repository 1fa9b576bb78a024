"""Scaling with the size of one log, 1 GB and more: old records should cost nothing but space on the disk."""

import random

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import (
    REQUESTS,
    TOPIC,
    BenchPlace,
    create_topic_on,
    end_offset,
    fetch_us,
    free_bytes,
    idle_percent,
    median_produce_us,
    resident_mb,
    start_s,
)
from cordwood.bench.growth.wire import BlockingClient, ProduceFrame, batch_of

SIZES_GB = (1, 5, 20, 50)
GB = 10**9
BATCH_BYTES = 500_000
IN_FLIGHT = 8
FETCHES = 2000
IDLE_S = 20.0
ROUNDS = 3
KEPT_FREE = 1.5
"""A size is left out where the disk has less free space than this multiple of it."""


def measure(place: BenchPlace) -> Area:
    """Measure one log that grows from size to size. With a scale below 1 the logs are smaller, with a note."""
    area = Area("log size", "GB of one log")
    pick = random.Random(1)
    sizes = [size * place.scale for size in SIZES_GB]
    area.notes.append(f"Real records are written, so no log of more than {sizes[-1]:g} GB.")
    with place.broker("log") as broker:
        create_topic_on(broker.address, 1)
        written = 0
        for size in sizes:
            more = size * GB - written
            if free_bytes(place.directory) < more * KEPT_FREE:
                area.notes.append(
                    f"No log of {size:g} GB: the disk has {free_bytes(place.directory) / GB:.0f} GB free."
                )
                break
            place.say(f"  {size:g} GB")
            written += _write(broker.address, more)
            count, end, pids = place.share(REQUESTS, least=200), end_offset(broker.address), [broker.pid]
            area.curve("produce at its end", "µs of CPU").add(
                size, median_produce_us(broker.address, pids, count, rounds=ROUNDS)
            )
            fetches = place.share(FETCHES, least=100)
            newest = range(end, end + 100)
            area.curve("fetch from its end", "µs of CPU").add(
                size, fetch_us(broker.address, pids, newest, fetches, bytes_max=1024)
            )
            anywhere = [pick.randrange(end - 1) for _ in range(fetches)]
            why = "Segments that are not in memory are read from the disk; there are more of them than are kept open."
            area.curve("fetch from anywhere", "µs of CPU", why).add(
                size, fetch_us(broker.address, pids, anywhere, fetches, bytes_max=1024)
            )
            area.curve("memory", "MB").add(size, resident_mb(broker))
            why = "What was written is proven again and again, at log.scrub.bytes.per.second."
            area.curve("idle", "% of a core", why).add(size, idle_percent(pids, place.seconds(IDLE_S)))
            broker.kill()
            area.curve("restart after SIGKILL", "s").add(size, start_s(broker))
    return area


def _write(address: str, size: float) -> int:
    """Write at least `size` bytes of large records, several in flight. Return how many."""
    request, waiting, written = ProduceFrame(TOPIC, 0, batch_of(BATCH_BYTES)), 0, 0
    with BlockingClient(address) as client:
        while written < size:
            if waiting == IN_FLIGHT:
                request.offset_in(client.receive_frame())
                waiting -= 1
            client.socket.sendall(request.frame)
            waiting += 1
            written += BATCH_BYTES
        for _ in range(waiting):
            request.offset_in(client.receive_frame())
    return written
