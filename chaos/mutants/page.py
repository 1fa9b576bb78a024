"""The page docs/mutants.md, made from a recorded hunt only."""

from collections.abc import Iterator, Sequence

from cordwood.chaos.mutants.hunt import MutantVerdict
from cordwood.chaos.results import Result, Row

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
