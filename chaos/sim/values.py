"""Test values in logs: one value per batch."""

from cordwood.chaos.sim.replication import NOW_MS
from cordwood.storage.batch import NO_SEQUENCE, split
from cordwood.storage.log import Log
from cordwood.storage.records import Record, decode, encode
from cordwood.storage.types import NO_PRODUCER_ID

READ_BYTES = 1 << 20


def batch_of(value: str, producer: int = NO_PRODUCER_ID, epoch: int = -1, sequence: int = NO_SEQUENCE) -> bytes:
    """Return a batch as a producer sends it, by default a producer without idempotence."""
    record = Record(0, NOW_MS, b"k", value.encode())
    return encode([record], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def values_between(log: Log, start: int, end: int) -> list[tuple[int, str]]:
    """Return the offsets and values of a range. Raises DamagedLog."""
    found = []
    offset = start
    while offset < end and (data := log.read(offset, READ_BYTES, end)):
        for batch in split(data):
            for record in decode(batch):
                found.append((record.offset, (record.value or b"").decode()))
                offset = record.offset + 1
    return [(at, value) for at, value in found if start <= at < end]
