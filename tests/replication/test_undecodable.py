"""Batches that no consumer can decompress: each is reported once, whatever the number of scrub passes."""

from raw_batches import NOW_MS, raw_batch
from replica_fixture import ReplicaFixture
from virtual_time import run

from cordwood.cluster.repairs.damage import DamageRegister
from cordwood.replication.partition import Partition
from cordwood.replication.scrubber import Scrubber
from cordwood.storage.batch import Compression
from cordwood.storage.scrub import Undecodable


async def nothing() -> None:
    """Do nothing: there are no files to scrub but the logs."""


def test_it_is_reported_once() -> None:
    async def scenario() -> None:
        broker = ReplicaFixture()
        partition = broker.partition()
        found: list[tuple[Partition, Undecodable]] = []
        partition.append(raw_batch(b"nothing of the kind", 3, Compression.ZSTD), NOW_MS)
        await broker.produce_and_flush(*"abcdef" * 20)
        scrubber = Scrubber(broker.replicas, 1 << 30, nothing, lambda *each: found.append(each))
        for _ in range(3):
            await scrubber.scrub()
        [(where, batch)] = found
        assert (where, batch.offset, batch.end_offset) == (partition, 0, 3)
        assert not partition.is_offline

    run(scenario())


def test_it_is_known_by_where_it_lies_also_after_its_segment_was_replaced() -> None:
    register = DamageRegister()
    assert [register.note_undecodable("/data/0.log", at) for at in (0, 0, 70)] == [True, False, True]
    assert len(register.undecodable) == 2
