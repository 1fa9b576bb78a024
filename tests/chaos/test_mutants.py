"""Mutants: every one still fits the source, the quick ones are caught, and what is no mutant is not."""

import asyncio
from pathlib import Path

import pytest
import typer.testing

import cordwood
from cordwood.chaos.mutants import record, report
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.chase import Limits
from cordwood.chaos.mutants.command import mutants
from cordwood.chaos.mutants.hunt import Hunt, Outcome, Verdict
from cordwood.chaos.mutants.mutant import Mutant, Stale, Story

SOURCE = Path(cordwood.__path__[0])
AN_HOUR = 1.0
A_MINUTE = 1 / 60
IDLE = Mutant(
    "idle",
    "replication/leader.py",
    "        self.high_watermark = end\n",
    "        self.high_watermark = end + 0\n",
    "None.",
    "Not at all.",
    Story.REPLICAS,
)


def hunted(mutant: Mutant, hours: float) -> Outcome:
    return asyncio.run(Hunt(Limits(hours), [mutant.story]).run(mutant))


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source(mutant: Mutant) -> None:
    source = (SOURCE / mutant.file).read_text()
    changed = mutant.applied_to(source)
    assert changed != source
    compile(changed, mutant.file, "exec")


def test_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ALL) >= 40


QUICK = (
    "no-segment-sync",
    "epochs-are-set-back-first",
    "index-outlives-a-power-cut",
    "deposed-leaders-keep-their-waiters",
    "truncation-without-walking-back",
    "no-pre-vote",
    "entries-of-earlier-terms-are-committed-alone",
    "late-entries-truncate",
    "stale-generations-commit",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_caught(name: str) -> None:
    outcome = hunted(BY_NAME[name], AN_HOUR)
    assert outcome.verdict is Verdict.CAUGHT, outcome.what
    assert outcome.seed > 0
    assert outcome.simulated_s > 0


def test_what_changes_nothing_is_not_caught() -> None:
    outcome = hunted(IDLE, A_MINUTE)
    assert outcome.verdict is Verdict.SURVIVED, outcome.what
    assert outcome.seeds > 0
    assert outcome.simulated_s >= 60


def test_a_mutant_that_does_not_run_says_nothing() -> None:
    broken = Mutant("broken", IDLE.file, IDLE.find, "        nonsense nonsense\n", "", "", Story.REPLICAS)
    outcome = hunted(broken, A_MINUTE)
    assert outcome.verdict is Verdict.UNFIT
    assert "SyntaxError" in outcome.what


@pytest.mark.parametrize("source", ["", IDLE.find * 2])
def test_a_mutant_that_does_not_fit_is_named(source: str) -> None:
    with pytest.raises(Stale, match=r"idle: its text is in replication/leader\.py"):
        IDLE.applied_to(source)


def test_survivors_are_told_by_name_unless_they_do_no_harm() -> None:
    harmless = Mutant("quiet", IDLE.file, IDLE.find, "", "", "", Story.REPLICAS, harmless="There are two of it.")
    outcomes = [
        Outcome(BY_NAME["no-pre-vote"], Verdict.CAUGHT, "a term ended", Story.QUORUM, seed=3, seeds=3, simulated_s=90),
        Outcome(harmless, Verdict.HARMLESS, "", seeds=9),
        Outcome(IDLE, Verdict.SURVIVED, "", seeds=9),
    ]
    assert not report.is_well(outcomes)
    assert report.is_well(outcomes[:2])
    assert report.summary(outcomes).endswith("1 of 2 mutants caught.")
    verdict = report.verdict(outcomes)
    assert (verdict["survivors"], verdict["score"]) == (["idle"], 0.5)
    assert verdict["harmless"] == {"quiet": "harmless. There are two of it."}


def test_a_hunt_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path, caught = tmp_path / "outcomes", BY_NAME["no-pre-vote"]
    assert record.read(path) == {}
    survived = Outcome(caught, Verdict.SURVIVED, "", seeds=9)
    found = Outcome(caught, Verdict.CAUGHT, "a term ended", Story.QUORUM, seed=3, seeds=3, simulated_s=90.0)
    for outcome in (survived, found):
        record.append(path, outcome, "abc")
    assert record.read(path) == {caught.name: found}
    app = typer.Typer()
    app.command()(mutants)
    table = tmp_path / "mutants.md"
    result = typer.testing.CliRunner().invoke(
        app, ["--only", caught.name, "--record", str(path), "--table", str(table)]
    )
    assert (result.exit_code, result.output.strip()) == (0, "1 of 1 mutants caught.")
    assert "| `no-pre-vote` | A voter asks before it stands. | quorum 3 | 3 | 90 simulated s |" in table.read_text()


def test_real_time_that_is_over_is_no_survival() -> None:
    outcome = asyncio.run(Hunt(Limits(AN_HOUR, real_s=0.0), [IDLE.story]).run(IDLE))
    assert outcome.verdict is Verdict.UNDECIDED
    assert not report.is_well([outcome])


def test_an_unknown_name_gets_a_sentence() -> None:
    app = typer.Typer()
    app.command()(mutants)
    result = typer.testing.CliRunner().invoke(app, ["--only", "no-such-thing"])
    assert result.exit_code == 2
    assert "there is no mutant no-such-thing" in result.output
