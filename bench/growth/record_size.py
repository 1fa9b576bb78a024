"""Scaling with the size of a record, 10 bytes to 1 MB, each in a request of its own: cost per request and per MB."""

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import (
    REQUESTS,
    BenchPlace,
    create_topic_on,
    fetch_us,
    median_produce_us,
    resident_mb,
)

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
BYTES_EACH = 200_000_000
ROUNDS = 3


def measure(place: BenchPlace) -> Area:
    """Measure each size: small records by number of requests, large ones by number of bytes."""
    area = Area("record size", "bytes of a record")
    for size in SIZES:
        place.say(f"  {size:,} bytes")
        count = place.share(min(REQUESTS, BYTES_EACH // size), least=20)
        with place.broker(f"size-{size}") as broker:
            create_topic_on(broker.address, 1)
            pids = [broker.pid]
            produced = median_produce_us(broker.address, pids, count, size, ROUNDS)
            why = "Its bytes are checked against their checksum, and copied into the page cache."
            area.curve("produce", "µs of CPU", why).add(size, produced)
            bytes_max = size + 100
            fetched = fetch_us(broker.address, pids, range(min(count, 100)), count, bytes_max)
            why = "Its bytes are proven, with all of the 4 KiB that they share a checksum with, and sent."
            area.curve("fetch", "µs of CPU", why).add(size, fetched)
            area.curve("produce, a MB", "ms of CPU for a MB").add(size, produced / size * 1000)
            area.curve("fetch, a MB", "ms of CPU for a MB").add(size, fetched / size * 1000)
            why = "A receive buffer grows to the largest request, and is given back when the connection idles."
            area.curve("memory", "MB", why).add(size, resident_mb(broker))
    return area
