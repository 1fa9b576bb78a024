"""The command `cordwood chaos run`: usage errors in one sentence, and a short run with verdict and report."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_command import chaos_run
from local_cluster import LocalCluster
from typer.testing import CliRunner

from cordwood.chaos.cli import app


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Run one broker that the command has not started."""
    cluster = LocalCluster(tmp_path / "cluster", 1)
    cluster.up()
    yield cluster
    cluster.end()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "kill,earthquake"], "there is no fault earthquake"),
        (["--target", "nowhere"], "give local, compose or HOST:PORT"),
        (["--target", "127.0.0.1:1", "--faults", "none"], "no broker answers there"),
        (["--target", "127.0.0.1:9092", "--faults", "kill"], "faults cannot be injected"),
        (["--target", "compose", "--faults", "power-cut"], "power-cut cannot be done here"),
        (["--minutes", "0"], "--minutes"),
        (["--fault", "earthquake"], "there is no fault earthquake, only kill, coordinator-kill, pause, partition"),
        (["--rounds", "2"], "--rounds only with --fault NAME: kill, coordinator-kill"),
        (["--fault", "kill", "--minutes", "2"], "give neither --faults nor --minutes"),
        (["--fault", "kill", "--target", "compose"], "--target local"),
        (["--fault", "wipe", "--brokers", "1"], "wipe needs at least 3 brokers"),
        (["--fault", "kill", "--limit", "speed=1"], "speed is no limit of this fault, which has produce_again_s"),
        (["--fault", "kill", "--kinds", "nuke"], "there is no kind nuke of kill, only leader, controller, everyone"),
        (["--report", "no/such/folder/report.html", "--faults", "none"], "cannot be written"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else "",
)
def test_wrong_usage_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["run", *words])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert not list(tmp_path.glob("*.html"))


def test_a_short_run_with_kills_ends_with_a_verdict_and_a_report(tmp_path: Path) -> None:
    ended = chaos_run(tmp_path, "--faults", "kill", "--minutes", "0.25", "--seed", "5", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *_, sentence, last = ended.stdout.splitlines()
    verdict = json.loads(last)
    assert verdict["anomalies"] == []
    assert verdict["seed"] == 5
    assert verdict["faults"]["kill"] >= 1
    assert verdict["acknowledged"] > 1000
    assert verdict["read"] >= 2 * verdict["acknowledged"]
    assert verdict["transactions"]["committed"] > 20
    assert "no anomaly" in sentence
    report = (tmp_path / "cordwood-chaos-5.html").read_text()
    assert "killed" in report


def test_a_cluster_that_is_known_by_its_address_is_worked_on_and_checked(cluster: LocalCluster, tmp_path: Path) -> None:
    ended = chaos_run(tmp_path, "--target", cluster.bootstrap, "--faults", "none", "--minutes", "0.1", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    verdict = json.loads(ended.stdout.splitlines()[-1])
    assert (verdict["target"], verdict["faults"], verdict["anomalies"]) == (cluster.bootstrap, {}, [])
    assert verdict["acknowledged"] > 500
    assert verdict["read"] >= 2 * verdict["acknowledged"]
    [report] = tmp_path.glob("*.html")
    assert cluster.bootstrap in report.read_text()
    assert cluster.is_running()
