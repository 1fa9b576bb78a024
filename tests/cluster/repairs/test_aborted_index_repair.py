"""A damaged aborted index of one replica: found by a scrub, and found again in the replica's own batches."""

import pytest
from transactions import decide, write

from cordwood.chaos.sim.replicas import ReplicaCluster, run_scenario

REPAIRED_S = 60.0


@pytest.mark.parametrize("harm", ["flipped", "lost"])
def test_an_aborted_index_is_found_again_in_the_batches(harm: str) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        for number in range(10):
            await cluster.produce(f"value-{number}")
        await cluster.settled()
        leader = cluster.replica(cluster.leader())
        for sequence in range(20):
            write(leader, "a" * 100, sequence=sequence)
            decide(leader, commit=False)
        await cluster.settled()
        broker = next(broker for broker in cluster.ids if broker != cluster.leader())
        replica = cluster.replica(broker)
        await cluster.running[broker].log_maintenance.checkpoints.write(replica)
        expected = replica.log.aborted(0, replica.log.log_end)
        assert len(expected) == 20
        assert expected == leader.log.aborted(0, leader.log.log_end)
        for segment in replica.log.segments[:-1]:
            segment.release()
        disk = cluster.disks[broker]
        path = [path for path in disk.files() if path.endswith(".txnindex")][1]
        if harm == "lost":
            disk.lose(path)
        else:
            disk.flip(path, 40, 3)
        damage = cluster.running[broker].damage
        await cluster.until(lambda: damage.found == damage.repaired == 1, "the index is rewritten", REPAIRED_S)
        assert replica.log.aborted(0, replica.log.log_end) == expected
        await cluster.kill(broker)
        cluster.start(broker)
        await cluster.settled()
        replica = cluster.replica(broker)
        assert (cluster.running[broker].damage.found, replica.log.damage) == (0, [])
        assert replica.log.aborted(0, replica.log.log_end) == expected
        assert replica.last_stable_offset == replica.high_watermark

    run_scenario(story)
