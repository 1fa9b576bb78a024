"""A file of outcomes, one JSON object a line: a hunt that was broken off goes on where it was."""

import json
from pathlib import Path
from typing import Any

from cordwood.chaos.mutants.catalogue import BY_NAME
from cordwood.chaos.mutants.hunt import Outcome, Verdict
from cordwood.chaos.mutants.mutant import Story


def read(path: Path) -> dict[str, Outcome]:
    """The last outcome of each mutant that there still is, by name. Empty where there is no such file."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [row for line in lines if (row := json.loads(line))["mutant"] in BY_NAME]
    return {row["mutant"]: _outcome(row) for row in rows}


def append(path: Path, outcome: Outcome, commit: str) -> None:
    """Add what became of one."""
    row = {
        "mutant": outcome.mutant.name,
        "verdict": outcome.verdict,
        "what": outcome.what,
        "story": outcome.story,
        "seed": outcome.seed,
        "seeds": outcome.seeds,
        "simulated_s": outcome.simulated_s,
        "commit": commit,
    }
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _outcome(row: dict[str, Any]) -> Outcome:
    story = None if row["story"] is None else Story(row["story"])
    return Outcome(
        BY_NAME[row["mutant"]],
        Verdict(row["verdict"]),
        row["what"],
        story,
        row["seed"],
        row["seeds"],
        row["simulated_s"],
    )
