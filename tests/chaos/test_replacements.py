"""Replacements that a kill interrupts: how they are carried on, and how the replicas of two directories are shown."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from cordwood.chaos.live.brokers import NotInTime
from cordwood.chaos.live.cluster import LocalCluster
from cordwood.chaos.live.faults import replacements
from cordwood.chaos.live.faults.replacements import VOTER_REPLACED_S, VoterReplacement
from cordwood.chaos.live.figures import Figures
from cordwood.chaos.live.replacements import joined
from cordwood.chaos.live.replica_logs import replicas_in

OLD, NEW = 2, 4


class Quorum:
    """The commands `cordwood quorum` on a quorum in memory."""

    def __init__(self, *voters: int, refusals: int = 0) -> None:
        self.voters, self.refusals = list(voters), refusals
        self.commands: list[str] = []

    def run(self, *arguments: str) -> CompletedProcess[str]:
        """Take the place of `run_cordwood`. The first changes are refused."""
        _, command, *rest = arguments[: arguments.index("-b")]
        if command == "status":
            members = [{"broker": id_, "role": "voter"} for id_ in self.voters]
            return CompletedProcess(arguments, 0, json.dumps({"leader": self.voters[0], "members": members}), "")
        self.commands.append(" ".join([command, *rest]))
        if self.refusals:
            self.refusals -= 1
            return CompletedProcess(arguments, 1, "", "no quorum")
        if command == "replace":
            self.voters.append(int(rest[1]))
        self.voters.remove(int(rest[0]))
        return CompletedProcess(arguments, 0, "", "")


@pytest.fixture
def interrupted(tmp_path: Path) -> VoterReplacement:
    """Return the replacement of a voter in a cluster whose brokers do not run."""
    return VoterReplacement(LocalCluster(tmp_path, 4, may_all_vote=True), old=OLD, new=NEW)


def settled(
    interrupted: VoterReplacement, quorum: Quorum, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> Figures:
    monkeypatch.setattr(replacements, "run_cordwood", quorum.run)
    monkeypatch.setattr(replacements, "REPLACED_S", patience_s)
    figures = Figures()
    interrupted.settle([OLD], figures)
    return figures


@pytest.mark.parametrize(
    ("voters", "commands"),
    [((1, 2, 3), ["replace 2 4"]), ((1, 2, 3, 4), ["remove 2"]), ((1, 3, 4), [])],
    ids=["before-it-began", "half-way", "done"],
)
def test_a_replacement_is_carried_on_from_where_the_kill_left_it(
    voters: tuple[int, ...], commands: list[str], interrupted: VoterReplacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(*voters)
    figures = settled(interrupted, quorum, 10, monkeypatch)
    assert quorum.commands == commands
    assert sorted(quorum.voters) == [1, 3, 4]
    assert VOTER_REPLACED_S in figures.values


def test_a_refused_command_is_repeated(interrupted: VoterReplacement, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(1, 2, 3, refusals=2)
    settled(interrupted, quorum, 10, monkeypatch)
    assert quorum.commands == ["replace 2 4"] * 3


def test_a_replacement_that_does_not_end_is_not_in_time(
    interrupted: VoterReplacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotInTime, match="voter 2 was not replaced by 4 within 0 s:\nno quorum"):
        settled(interrupted, Quorum(1, 2, 3, refusals=1000), 0, monkeypatch)


def test_replicas_of_two_directories_are_shown_as_those_of_one(tmp_path: Path) -> None:
    for directory, partition in (("data", "0"), ("data-2", "1")):
        (tmp_path / directory / "topics" / "topic" / partition).mkdir(parents=True)
    view = joined(tmp_path / "view", tmp_path / "data", tmp_path / "data-2")
    assert replicas_in(view) == {("topic", "0"), ("topic", "1")}


def test_every_broker_may_vote_and_finds_the_quorum_by_addresses(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 4, may_all_vote=True, has_second_disks=True)
    before = cluster.brokers[4].command()
    cluster.find_voters_by_address()
    after = cluster.brokers[4].command()
    assert any(word.startswith("listeners=") and ",CONTROLLER://" in word for word in before)
    assert any(word.startswith("log.dirs=") and word.endswith("data-2") for word in before)
    assert any(word.startswith("controller.quorum.voters=") for word in before)
    assert not any(word.startswith("controller.quorum.voters=") for word in after)
    [addresses] = [word for word in after if word.startswith("controller.quorum.bootstrap.servers=")]
    assert len(addresses.split(",")) == 4
