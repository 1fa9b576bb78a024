"""Rows of a recorded hunt: one for each mutant, with all figures of the page."""

from collections.abc import Sequence
from typing import Any

from cordwood.chaos.mutants.catalogue import BY_NAME
from cordwood.chaos.mutants.hunt import MutantOutcome, MutantVerdict
from cordwood.chaos.mutants.killers import parsed
from cordwood.chaos.results import Row

KIND = "mutants"


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
