"""The hunt for mutants: caught, survived, stale or unfit, and its command, page and records."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.testing

import cordwood
from cordwood.chaos.mutants import command, killers, report
from cordwood.chaos.mutants.catalogue import ALL, BY_NAME
from cordwood.chaos.mutants.hunt import Hunt, MutantOutcome, MutantVerdict, copied
from cordwood.chaos.mutants.killers import Killer, PytestFile, Seeds, parsed
from cordwood.chaos.mutants.mutant import Mutant, Scenario, Stale
from cordwood.chaos.results import Result, ResultFile

SOURCE = Path(cordwood.__path__[0])
KILLERS = killers.pinned()
IDLE = Mutant(
    "idle",
    "replication/leader.py",
    "        return view.flushed_end >= max(high_watermark, self.epoch_start)\n",
    "        return view.flushed_end >= max(high_watermark, self.epoch_start) + 0\n",
    "None.",
    "Not at all.",
)
QUICK_FILE = PytestFile("tests/storage/test_epochs.py")
CAUGHT = MutantOutcome(
    BY_NAME["no-pre-vote"], Seeds(Scenario.QUORUM, 9), MutantVerdict.CAUGHT, "a term ended", 3, 3, 90.0, 2.0
)
SURVIVED = MutantOutcome(BY_NAME["no-truncation"], QUICK_FILE, MutantVerdict.SURVIVED, "")


def hunted(mutant: Mutant, killer: Killer | None) -> MutantOutcome:
    return asyncio.run(Hunt({} if killer is None else {mutant.name: killer}).run(mutant))


def misfit(mutant: Mutant) -> str:
    """Return what is wrong with the mutant; "" where it fits the source, compiles, and has an existing killer."""
    source = (SOURCE / mutant.file).read_text()
    try:
        changed = mutant.applied_to(source)
        compile(changed, mutant.file, "exec")
    except (Stale, SyntaxError) as error:
        return f"{mutant.name}: {error}"
    if changed == source:
        return f"{mutant.name} changes nothing"
    killer = KILLERS.get(mutant.name)
    is_there = isinstance(killer, Seeds) or (killer is not None and (killers.ROOT / killer.path).is_file())
    return "" if is_there else f"{mutant.name} has no killer that is there: {killer}"


def test_every_mutant_fits_the_source_and_has_a_killer() -> None:
    assert [wrong for mutant in ALL if (wrong := misfit(mutant))] == []


def test_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(ALL) >= 200
    assert KILLERS.keys() == BY_NAME.keys()


@pytest.mark.parametrize("times", [0, 2])
def test_a_mutant_that_does_not_fit_is_named(times: int) -> None:
    with pytest.raises(Stale, match=r"idle: its text is in replication/leader\.py"):
        IDLE.applied_to(IDLE.find * times)


def test_a_mutant_changes_its_copy_alone(tmp_path: Path) -> None:
    """The other files of the copy are links to those of the source."""
    before = (SOURCE / IDLE.file).read_text()
    copy = copied(tmp_path, IDLE)
    assert (copy / IDLE.file).read_text() == IDLE.applied_to(before)
    assert (SOURCE / IDLE.file).read_text() == before


def test_a_story_catches_within_its_seeds() -> None:
    outcome = hunted(BY_NAME["no-journal-sync"], Seeds(Scenario.QUORUM, 3))
    assert outcome.verdict is MutantVerdict.CAUGHT, outcome.what
    assert 1 <= outcome.seed == outcome.seeds <= 3


def test_a_test_file_catches_and_the_failed_test_is_named() -> None:
    outcome = hunted(BY_NAME["no-checksum-of-marks"], PytestFile("tests/storage/test_flushed_offsets.py"))
    assert outcome.verdict is MutantVerdict.CAUGHT, outcome.what
    assert outcome.what.startswith("test_")


def test_what_changes_nothing_is_not_caught() -> None:
    outcome = hunted(IDLE, QUICK_FILE)
    assert outcome.verdict is MutantVerdict.SURVIVED, outcome.what


def test_a_mutant_that_does_not_run_says_nothing() -> None:
    broken = Mutant("broken", IDLE.file, IDLE.find, "        nonsense nonsense\n", "", "")
    outcome = hunted(broken, Seeds(Scenario.REPLICAS, 1))
    assert outcome.verdict is MutantVerdict.UNFIT
    assert "SyntaxError" in outcome.what


def test_a_mutant_without_a_killer_survives_and_one_that_does_not_fit_is_stale() -> None:
    assert hunted(IDLE, None).verdict is MutantVerdict.SURVIVED
    gone = Mutant("gone", IDLE.file, "no such text", "", "", "")
    assert hunted(gone, QUICK_FILE).verdict is MutantVerdict.STALE


@pytest.mark.parametrize("text", ["tests/storage/test_flushed_offsets.py", "quorum 1..9"])
def test_a_killer_is_read_as_it_was_written(text: str) -> None:
    assert str(parsed(text)) == text


def test_all_are_well_if_all_are_caught() -> None:
    assert report.is_well([CAUGHT])
    assert not report.is_well([CAUGHT, SURVIVED])
    assert report.summary([CAUGHT, SURVIVED]).endswith("1 of 2 mutants caught.")
    verdict = report.verdict([CAUGHT, SURVIVED])
    assert (verdict["survivors"], verdict["score"], verdict["seeds"]) == (["no-truncation"], 0.5, {"no-pre-vote": 3})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return a runner of the command at a fixed commit, without pinned killers."""
    monkeypatch.setattr("cordwood.chaos.results.clean_commit", lambda: "abc")
    monkeypatch.setattr(command, "pinned", dict)
    app = typer.Typer()
    app.command()(command.mutants)

    def invoked(*words: object) -> tuple[int, str]:
        result = typer.testing.CliRunner().invoke(app, list(map(str, words)))
        return result.exit_code, result.output

    return invoked


def test_a_hunt_that_was_broken_off_goes_on_where_it_was(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    path = tmp_path / "mutants.jsonl"
    words = ["--only", "no-pre-vote", "--only", "no-truncation", "--record", path, "--json"]
    exit_code, said = run(*words, "--minutes", "0")
    assert (exit_code, json.loads(said.splitlines()[-1])["not_run"]) == (0, 2)
    kept = ResultFile(path, report.KIND, {"mutants": 2})
    kept.add(report.row(CAUGHT))
    exit_code, said = run(*words)
    assert (exit_code, json.loads(said.splitlines()[-1])["survivors"]) == (1, ["no-truncation"])
    kept = ResultFile(path, report.KIND, {"mutants": 2})
    assert kept.is_whole
    assert report.outcomes(kept.rows)["no-pre-vote"] == CAUGHT


def test_an_unknown_name_gets_a_sentence(run: Callable[..., tuple[int, str]]) -> None:
    exit_code, said = run("--only", "no-such-thing")
    assert exit_code == 2
    assert "there is no mutant no-such-thing" in said


def test_only_those_are_hunted_whose_file_or_killer_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {
        "no-pre-vote": Seeds(Scenario.QUORUM, 9),
        "no-truncation": QUICK_FILE,
        "repeats-are-appended": QUICK_FILE,
    }
    monkeypatch.setattr(command, "pinned", lambda: pins)
    monkeypatch.setattr(command, "_changed_files", lambda _commit: {BY_NAME["no-pre-vote"].file, QUICK_FILE.path})
    assert {mutant.name for mutant in command._differing([BY_NAME[name] for name in pins], "HEAD")} == pins.keys()
    monkeypatch.setattr(command, "_changed_files", lambda _commit: {"README.md"})
    assert list(command._differing([BY_NAME[name] for name in pins], "HEAD")) == []


def test_the_page_lists_the_unfit_and_what_was_not_run() -> None:
    unfit = MutantOutcome(
        BY_NAME["no-pre-vote"], CAUGHT.killer, MutantVerdict.UNFIT, "it fails without it too: watermark-regress"
    )
    rows = list(map(report.row, (CAUGHT, SURVIVED, unfit)))
    text = report.page(
        Result(report.KIND, "abc", "2026-11-23T08:00:00+00:00", {}, {"mutants": 4}, rows, is_whole=False)
    )
    assert "Commit abc, 2026-11-23: 1 of 3 mutants caught" in text
    assert "interrupted: 1 of 4 mutants were not run" in text
    assert "- `no-pre-vote` (quorum 1..9): it fails without it too: watermark-regress" in text
    assert "| `no-pre-vote` | A voter wins a pre-vote before it starts an election. | quorum 1..9 | 3 | 2 s |" in text
    assert "No run is recorded" in report.page(None)


def test_killers_are_kept_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(killers, "PINNED", tmp_path / "killers.json")
    pins: dict[str, Killer] = {"b": QUICK_FILE, "a": Seeds(Scenario.LOGS, 3)}
    killers.pin(pins)
    assert killers.pinned() == pins
