"""Report of a hunt: a line for each mutant, score and survivors, rows of a record, and the page docs/mutants.md."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cordwood.chaos.mutants.catalogue import BY_NAME
from cordwood.chaos.mutants.hunt import MutantOutcome, MutantVerdict
from cordwood.chaos.mutants.killers import parsed
from cordwood.chaos.results import Result, Row

KIND = "mutants"

HOUR_S = 3600.0
HEAD = """# Mutants

<!-- Made by `python docs/generate` from docs/results/mutants.jsonl, which `cordwood chaos mutants --record` writes. -->

Each mutant removes one rule, check or sync from a copy of the source. Its killer must then fail: a test file, or a
scenario of the simulator ([chaos.md](chaos.md)) within three times the seeds that it needed first. If the killer
passes, the test suite or the simulator has become weaker. `cordwood chaos mutants --only NAME` runs one mutant. The
rules are those of [rules.md](rules.md), by number.
"""
NONE = """No run is recorded. To record one, run `cordwood chaos mutants --record docs/results/mutants.jsonl`.
"""
OTHERS = (
    (MutantVerdict.SURVIVED, "Survivors", "Their killers passed."),
    (MutantVerdict.UNDECIDED, "Undecided", "Their time limit was reached before their killers finished."),
    (
        MutantVerdict.UNFIT,
        "Unfit",
        "No result: the mutant does not run, or the unchanged source fails in the same way.",
    ),
    (MutantVerdict.STALE, "Stale", "The text that they replace is not in the source."),
)


def line(outcome: MutantOutcome) -> str:
    """Return the line of one mutant."""
    name, verdict = outcome.mutant.name, outcome.verdict
    seed = f" seed {outcome.seed}" if outcome.seed else ""
    return f"{name:48} {verdict} ({outcome.killer}){seed} {outcome.real_s:.0f} s: {outcome.what}".rstrip(": ")


def summary(outcomes: Sequence[MutantOutcome]) -> str:
    """Return the score, and a line for each mutant that was not caught."""
    lines = [
        f"{name(outcome)}: {reason(outcome)}" for outcome in outcomes if outcome.verdict is not MutantVerdict.CAUGHT
    ]
    return "\n".join([*lines, score(outcomes)])


def score(outcomes: Sequence[MutantOutcome]) -> str:
    """Return the score as a sentence."""
    return f"{len(having(outcomes, MutantVerdict.CAUGHT))} of {len(outcomes)} mutants caught."


def verdict(outcomes: Sequence[MutantOutcome]) -> dict[str, Any]:
    """Return the summary as an object for programs."""
    caught = having(outcomes, MutantVerdict.CAUGHT)
    return {
        "mutants": len(outcomes),
        "caught": len(caught),
        "score": len(caught) / len(outcomes) if outcomes else 1.0,
        "survivors": [name(outcome) for outcome in having(outcomes, MutantVerdict.SURVIVED)],
        "undecided": [name(outcome) for outcome in having(outcomes, MutantVerdict.UNDECIDED)],
        "stale": [name(outcome) for outcome in having(outcomes, MutantVerdict.STALE)],
        "unfit": {name(outcome): outcome.what for outcome in having(outcomes, MutantVerdict.UNFIT)},
        "killers": {name(outcome): str(outcome.killer) for outcome in caught},
        "seeds": {name(outcome): outcome.seed for outcome in caught if outcome.seed},
    }


def is_well(outcomes: Iterable[MutantOutcome]) -> bool:
    """Return whether every mutant was caught."""
    return all(outcome.verdict is MutantVerdict.CAUGHT for outcome in outcomes)


def name(outcome: MutantOutcome) -> str:
    """Return the mutant's name."""
    return outcome.mutant.name


def reason(outcome: MutantOutcome) -> str:
    """Return why the mutant was not caught, as far as that is known; for a survivor, the expected symptom."""
    match outcome.verdict:
        case MutantVerdict.SURVIVED:
            return f"SURVIVED {outcome.killer}. {outcome.mutant.rule} Expected: {outcome.mutant.shows}"
        case MutantVerdict.UNDECIDED:
            return f"not caught in the real time it was given. {outcome.mutant.rule} Expected: {outcome.mutant.shows}"
        case _:
            return f"{outcome.verdict}. {outcome.what}"


def having(outcomes: Iterable[MutantOutcome], verdict: MutantVerdict) -> list[MutantOutcome]:
    """Return the outcomes with this verdict."""
    return [outcome for outcome in outcomes if outcome.verdict is verdict]


def row(outcome: MutantOutcome) -> Row:
    """Return the row of one outcome."""
    mutant = outcome.mutant
    return {
        "mutant": mutant.name,
        "file": mutant.file,
        "rule": mutant.rule,
        "killer": None if outcome.killer is None else str(outcome.killer),
        "verdict": outcome.verdict,
        "what": outcome.what,
        "seed": outcome.seed,
        "seeds": outcome.seeds,
        "simulated_s": round(outcome.simulated_s, 1),
        "real_s": round(outcome.real_s, 1),
    }


def outcomes(rows: Sequence[Row]) -> dict[str, MutantOutcome]:
    """Return the outcomes of an interrupted hunt, by the mutant's name."""
    return {row["mutant"]: _outcome(row) for row in rows}


def _outcome(row: dict[str, Any]) -> MutantOutcome:
    return MutantOutcome(
        BY_NAME[row["mutant"]],
        None if row["killer"] is None else parsed(row["killer"]),
        MutantVerdict(row["verdict"]),
        row["what"],
        row["seed"],
        row["seeds"],
        row["simulated_s"],
        row["real_s"],
    )


def page(result: Result | None) -> str:
    """Return the page as Markdown: the score, each mutant's killer and time, and the mutants that were not caught."""
    return "\n".join([HEAD, NONE] if result is None else [HEAD, *_result_lines(result)])


def _result_lines(result: Result) -> Iterator[str]:
    rows, wanted = result.rows, result.about["mutants"]
    caught = [row for row in rows if row["verdict"] == MutantVerdict.CAUGHT]
    hours = sum(row["real_s"] for row in rows) / HOUR_S
    score = f"Commit {result.commit}, {result.at[:10]}: {len(caught)} of {len(rows)} mutants caught"
    score += f", in {hours:.1f} hours of work."
    if not result.is_whole:
        score += f" The run was interrupted: {wanted - len(rows)} of {wanted} mutants were not run."
    yield f"{score}\n"
    for verdict, title, meaning in OTHERS:
        if others := [row for row in rows if row["verdict"] == verdict]:
            lines = "".join(f"- `{row['mutant']}` ({row['killer']}): {row['what'] or row['rule']}\n" for row in others)
            yield f"## {title}\n\n{meaning}\n\n{lines}"
    yield "## Caught\n"
    yield _table(caught)


def _table(caught: Sequence[Row]) -> str:
    rows = "".join(
        f"| `{row['mutant']}` | {row['rule']} | {row['killer']} | {row['seed'] or ''} | {row['real_s']:.0f} s |\n"
        for row in caught
    )
    return "| mutant | what it breaks | killer | seed | time |\n|---|---|---|---|---|\n" + rows
