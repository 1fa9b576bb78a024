"""A scenario for KIP-279: two leaders alternate, each with unreplicated records, and one has to walk back.

A random scenario seldom gets there: the first leader has to be re-elected as the only candidate, before it has
replicated the second leader's records.
"""

import asyncio
import random

from cordwood.chaos.sim.replicas import ReplicaCluster, run_scenario
from cordwood.chaos.sim.strict import strictly

ALONE_MAX = 40
TURNS = 3
FENCED_S = 20.0


def run_turns_scenario(seed: int) -> float:
    """Run the scenario; return its simulated seconds. Raises ScenarioFailed (with the cause) or AssertionError."""
    return run_scenario(lambda cluster: strictly(_scenario(cluster)), seed)


async def _scenario(cluster: ReplicaCluster) -> None:
    rng = cluster.rng
    for turn in range(TURNS):
        await cluster.produce(f"before {turn}")
        await _take_turns(cluster, rng, f"turn {turn}")
        await cluster.produce(f"after {turn}")
        await cluster.settled()
        replicas = [cluster.values(broker) for broker in cluster.ids]
        assert all(values == replicas[0] for values in replicas), "rule 2: the replicas differ"
        known = [value for value in replicas[0] if value in cluster.acked[0]]
        assert known == cluster.acked[0], "promise 1: what was acknowledged is not there"


async def _take_turns(cluster: ReplicaCluster, rng: random.Random, name: str) -> None:
    first = cluster.leader()
    second, third = rng.sample([one for one in cluster.ids if one != first], 2)
    cluster.cut_off(third)
    await cluster.until(lambda: cluster.isr() == {first, second}, f"{third} is out of sync", FENCED_S)
    cluster.cut_off(first)
    await _write_alone(cluster, rng, first, f"{name}, first")
    await cluster.until(lambda: cluster.leader() == second, f"{second} leads", FENCED_S)
    await asyncio.sleep(rng.uniform(0.1, 1.0))
    await _write_alone(cluster, rng, second, f"{name}, second")
    cluster.heal()
    cluster.cut_off(second)
    await cluster.until(lambda: cluster.leader() == first, f"{first} leads again", FENCED_S)
    await asyncio.sleep(rng.uniform(0.1, 1.0))


async def _write_alone(cluster: ReplicaCluster, rng: random.Random, broker: int, what: str) -> None:
    for number in range(rng.randrange(1, ALONE_MAX)):
        await cluster.append_unacknowledged(broker, f"{what} {number}")
    await asyncio.sleep(rng.uniform(0.1, 1.0))
