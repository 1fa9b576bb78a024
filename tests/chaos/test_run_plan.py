"""The plan of a live run: determined by its seed, with every fault in turn, and a bound on simultaneous faults."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest

from cordwood.chaos.live import campaign
from cordwood.chaos.live.brokers import LiveCluster, NotInTime
from cordwood.chaos.live.campaign import Campaign
from cordwood.chaos.live.faults.fault import ActiveFaults, Fault
from cordwood.chaos.live.faults.processes import Kill, RollingRestart
from cordwood.chaos.live.load_clients import LoadOnCluster
from cordwood.chaos.live.plan import Step, TargetRole, steps
from cordwood.chaos.live.rounds import probe_of
from cordwood.chaos.live.target import FAULTS, FaultTarget
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


class ThreeVoters(LiveCluster):
    """A cluster without processes. It has no controller while two of its brokers are under a fault."""

    def __init__(self) -> None:
        self.struck: set[int] = set()

    @property
    def ids(self) -> list[int]:
        return [1, 2, 3]

    @property
    def bootstrap(self) -> str:
        return "127.0.0.1:1"

    def controller(self) -> int:
        if len(self.struck) > 1:
            raise NotInTime("a controller did not come")
        return next(id_ for id_ in self.ids if id_ not in self.struck)


@dataclass
class Strike(Fault):
    """A fault that only notes its victims."""

    name: str  # type: ignore[misc]
    cluster: ThreeVoters
    victims: list[int] = field(default_factory=list)

    def strike(self, victims: Sequence[int], _rng: random.Random, /) -> str:
        self.victims += victims
        self.cluster.struck |= set(victims)
        return "struck"

    def heal(self, victims: Sequence[int], /) -> None:
        self.cluster.struck -= set(victims)


def test_no_controller_is_looked_for_while_two_voters_are_struck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ThreeVoters()
    faults = {name: Strike(name, cluster) for name in ("one", "two", "three")}
    run = Campaign(FaultTarget("none", cluster, faults, None), LoadOnCluster("t", 1), tmp_path, lambda _line: None)
    monkeypatch.setattr(run, "served", lambda *_: None)
    monkeypatch.setattr(run, "committed", lambda *_: None)
    monkeypatch.setattr(cluster, "wait_in_sync", lambda *_: None)
    joined = [Step(name, TargetRole.CONTROLLER, 0.0, 0.0, is_joined=True) for name in faults]
    monkeypatch.setattr(campaign, "steps", lambda *_: iter(joined))
    run._inject(0.01)
    assert [fault.victims for fault in faults.values()] == [[1], [2], [1]]
