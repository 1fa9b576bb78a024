"""Report of a hunt: a line for each mutant, then the score and the survivors."""

from collections.abc import Iterable, Sequence
from typing import Any

from cordwood.chaos.mutants.hunt import MutantOutcome, MutantVerdict


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
