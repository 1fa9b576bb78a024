"""A hanging transaction: a batch of a transaction that no coordinator knows, at the end of a partition's log."""

from broker_fixture import RunningBroker

from cordwood.storage.batch import TRANSACTIONAL, headers
from cordwood.storage.records import Record, encode

PRODUCER = 777_777
LAST_APPEND_MS = 1_700_000_000_000
"""Years ago: a transaction without an append since then is older than any may be."""


def leave_hanging(broker: RunningBroker, topic: str, value: bytes = b"hanging") -> int:
    """Kill a broker, and start it with a hanging transaction in partition 0 of a topic that has records.

    Return its first offset. The broker itself verifies each transaction, and lets none hang.
    """
    broker.kill()
    segment = max((broker.data / f"{topic}-0").glob("*.log"))
    *_, last = headers(segment.read_bytes())
    batch = encode(
        [Record(0, LAST_APPEND_MS, None, value)],
        base_offset=last.end,
        leader_epoch=last.leader_epoch,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    with segment.open("ab") as log:
        log.write(batch)
    broker.start()
    return last.end
