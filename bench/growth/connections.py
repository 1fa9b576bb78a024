"""Scaling with idle connections to one broker: their memory, and their effect on active connections."""

import time

from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import (
    REQUESTS,
    BenchPlace,
    allow_many_files,
    create_topic_on,
    idle_percent,
    median_produce_us,
    resident_mb,
)
from cordwood.bench.growth.wire import BlockingClient

COUNTS = (1, 10, 100, 1000, 5000)
IDLE_S = 15.0
SETTLE_S = 20.0
"""The time after which a broker has freed the buffers of idle connections."""
MEMORY_MAX_MB = 150.0


def measure(place: BenchPlace) -> Area:
    """Measure each count. Counts are not scaled: connections are quick to make."""
    allow_many_files()
    area = Area("connections", "idle connections")
    clients: list[BlockingClient] = []
    with place.broker("connections") as broker:
        create_topic_on(broker.address, 1)
        before_mb = resident_mb(broker)
        try:
            for count in COUNTS:
                place.say(f"  {count:,} connections")
                while len(clients) < count:
                    clients.append(BlockingClient(broker.address))
                    clients[-1].hello()
                area.curve("memory", "MB", "Each has a receive buffer of 4 KiB and the loop's own state.").add(
                    count, resident_mb(broker)
                )
                time.sleep(place.seconds(SETTLE_S))
                area.curve("idle", "% of a core").add(count, idle_percent([broker.pid], place.seconds(IDLE_S)))
                requests = place.share(REQUESTS, least=200)
                produced = median_produce_us(broker.address, [broker.pid], requests)
                area.curve("produce beside them", "µs of CPU").add(count, produced)
            most_mb = resident_mb(broker)
        finally:
            for client in clients:
                client.close()
    area.notes.append(f"A connection takes {(most_mb - before_mb) / COUNTS[-1] * 1000:.1f} KB.")
    area.promise(f"memory with {COUNTS[-1]:,} idle connections", most_mb, MEMORY_MAX_MB, "MB")
    return area
