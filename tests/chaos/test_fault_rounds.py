"""Rounds of faults on a real cluster: all guarantees and limits are kept, and a limit that is not fails the run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from chaos_command import chaos_run
from requirements import Requirement, check

from cordwood.chaos.live import local_target
from cordwood.chaos.live.campaign import Campaign
from cordwood.chaos.live.faults.bit_flip import REPAIRED_S
from cordwood.chaos.live.faults.fault import AT_ONCE_S, PRODUCE_AGAIN_S, RoundOptions
from cordwood.chaos.live.load_clients import LoadOnCluster
from cordwood.chaos.live.rounds import Rounds
from cordwood.chaos.live.verdict import judge

FAULTS = ("kill", "pause", "bit-flip", "power-cut")


@pytest.mark.timeout(300)
def test_kills_pauses_damage_and_power_cuts_cost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    faults = [name for name in FAULTS if name not in local_target.reasons()]
    with local_target.opened(tmp_path, faults, 0) as target:
        load = LoadOnCluster("rounds", 1, producers=2, per_second=400, consumers=1, members=1, segment_bytes=256 << 10)
        campaign = Campaign(target, load, tmp_path, lambda _line: None)
        forms = {
            f"{name} {form}": target.faults[name].forms()[form]
            for name, form in (
                ("kill", "leader"),
                ("kill", "controller"),
                ("pause", "leader"),
                ("bit-flip", "segment"),
                ("bit-flip", "index"),
                ("power-cut", "everyone"),
            )
            if name in faults
        }
        rounds = Rounds(campaign, RoundOptions(hold_s=AT_ONCE_S, is_survived=True), forms, tmp_path)
        target.cluster.start()
        try:
            campaign.run_through(lambda: rounds.inject(len(forms)))
            verdict = judge(campaign)
        finally:
            campaign.clients.kill()
    assert [(anomaly.kind, anomaly.sentence) for anomaly in verdict.anomalies] == []
    assert list(campaign.figures.exceeded(target.faults["bit-flip"].rounds.limits)) == []
    assert (len(campaign.spans), len(campaign.figures.values[REPAIRED_S])) == (len(forms), 2)
    assert PRODUCE_AGAIN_S in campaign.figures.values
    assert verdict.acknowledged > 1000


@pytest.mark.parametrize(
    ("fault", "rounds", "words"),
    [("partition", 1, ["--kinds", "leader-alone", "--hold", "3"]), ("power-cut", 2, ["--brokers", "1"])],
    ids=["partition", "power-cut"],
)
def test_rounds_of_one_fault_cost_nothing_that_was_acknowledged(
    tmp_path: Path, fault: str, rounds: int, words: list[str]
) -> None:
    why_not = local_target.reasons().get(fault)
    check(Requirement.ROOT, why_not is None, str(why_not))
    ended, verdict = one_fault(tmp_path, fault, rounds, *words)
    assert (ended.returncode, verdict["anomalies"]) == (0, []), ended.stdout + ended.stderr
    assert (verdict["faults"], verdict["acknowledged"] > 200) == ({fault: rounds}, True)
    assert "records_sent_again: max 0 (at most 0)" in ended.stdout


def test_clients_with_default_settings_notice_no_restart_and_a_planted_limit_alone_fails_the_run(
    tmp_path: Path,
) -> None:
    ended, verdict = one_fault(tmp_path, "rolling-restart", 1, "--hold", "0", "--limit", "records_sent_again=-1")
    assert (ended.returncode, verdict["kinds"]) == (1, {"limit": 1}), ended.stdout + ended.stderr
    assert "limit: records_sent_again: max 0 (at most -1)." in ended.stdout.splitlines()
    assert {"longest_silence_s", "client_errors", "records_that_no_group_member_read"} <= verdict["figures"].keys()
    assert verdict["acknowledged"] > 200


def one_fault(
    place: Path, fault: str, rounds: int, *words: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    """Run rounds of a fault. Return the command's end, and its verdict."""
    ended = chaos_run(place, "--fault", fault, "--rounds", str(rounds), "--seed", "1", "--json", *words)
    assert ended.stdout, ended.stderr
    return ended, json.loads(ended.stdout.splitlines()[-1])
