"""The plan of a live run: determined by its seed, with every fault in turn, and a bound on simultaneous faults."""

import random
from itertools import islice

from cordwood.chaos.live.brokers import LiveCluster
from cordwood.chaos.live.faults.fault import ActiveFaults
from cordwood.chaos.live.faults.processes import Kill, RollingRestart
from cordwood.chaos.live.plan import TargetRole, steps
from cordwood.chaos.live.rounds import probe_of
from cordwood.chaos.live.target import FAULTS
from cordwood.cluster.coordination.topic import partition_of


def test_a_seed_decides_everything() -> None:
    once, again, other = (list(islice(steps(FAULTS, random.Random(seed)), 50)) for seed in (7, 7, 8))
    assert once == again != other


def test_every_fault_has_its_turn() -> None:
    drawn = list(islice(steps(FAULTS, random.Random(7)), 3 * len(FAULTS)))
    for turn in range(3):
        assert {step.fault for step in drawn[turn * len(FAULTS) :][: len(FAULTS)]} == set(FAULTS)
    assert {step.aim for step in islice(steps(FAULTS, random.Random(7)), 100)} == set(TargetRole)


def test_a_probe_is_coordinated_by_its_shard() -> None:
    assert [partition_of(probe_of(shard, 3), 3) for shard in range(3)] == [0, 1, 2]


def test_without_faults_there_is_no_step() -> None:
    assert list(steps([], random.Random(7))) == []


def test_no_more_strikes_at_once_than_promised() -> None:
    kill, restart = Kill(LiveCluster()), RollingRestart(LiveCluster())
    one_paused = ActiveFaults(frozenset({"pause"}), frozenset({1}))
    assert kill.may_apply(ActiveFaults(), [1])
    assert kill.may_apply(one_paused, [2])
    assert not kill.may_apply(one_paused, [1])
    assert not kill.may_apply(one_paused, [1, 2, 3])
    assert not kill.may_apply(ActiveFaults(frozenset({"pause", "partition"}), frozenset({1, 2})), [3])
    assert not kill.may_apply(ActiveFaults(frozenset({"kill"}), frozenset({1})), [2])
    assert not restart.may_apply(one_paused, [2])
    assert not kill.may_apply(ActiveFaults(frozenset({"wipe"}), frozenset({1}), is_alone=True), [2])
