"""A leader with transactions and producers whose log is archived, and group commits of a follower."""

import asyncio

from peer_fixture import FollowerFixture, LeaderFixture
from raw_batches import NOW_MS
from transactions import decide, write

from cordwood.chaos.sim.values import batch_of
from cordwood.storage.config import LogConfig
from cordwood.storage.records import Record, encode

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)
COUNT = 60


async def filled() -> LeaderFixture:
    """Return a leader whose log has a transaction and idempotent producers."""
    broker = LeaderFixture(SMALL)
    partition = broker.lead(0)
    write(partition, "open", producer=1)
    for number in range(COUNT):
        record = Record(0, NOW_MS, b"k", f"{number} {'x' * 80}".encode())
        batch = encode([record], producer_id=5 + number % 2, producer_epoch=0, base_sequence=number // 2)
        partition.append(batch, NOW_MS)
    decide(partition, commit=False, producer=1)
    for number in range(20):
        partition.append(batch_of(f"tail {number}"), NOW_MS)
    for _ in range(3):
        await broker.turn()
        while broker.syncer.groups:
            broker.syncer.let_go()
    partition.committed_to(partition.log.log_end)
    return broker


async def flush(broker: FollowerFixture) -> None:
    for _ in range(5):
        await asyncio.sleep(0.05)
        while broker.syncer.groups:
            broker.syncer.let_go()
