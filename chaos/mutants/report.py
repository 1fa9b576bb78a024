"""What is said of the hunted: a line for each, then the score, and who survived."""

from collections.abc import Iterable, Sequence
from typing import Any

from cordwood.chaos.mutants.hunt import Outcome, Verdict

HOUR_S = 3600.0


def line(outcome: Outcome) -> str:
    """One mutant, as soon as it is known."""
    name, verdict = outcome.mutant.name, outcome.verdict
    match verdict:
        case Verdict.CAUGHT:
            seed = f"{outcome.story} seed {outcome.seed}"
            return f"{name:48} caught by {seed} after {duration(outcome.simulated_s)}: {outcome.what}"
        case Verdict.SURVIVED | Verdict.HARMLESS | Verdict.UNDECIDED:
            return f"{name:48} {verdict} {outcome.seeds} seeds, {duration(outcome.simulated_s)}"
        case Verdict.STALE | Verdict.UNFIT:
            return f"{name:48} {verdict}: {outcome.what}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """The score, and by name whoever was not caught."""
    lines = [f"{name(outcome)}: {reason(outcome)}" for outcome in outcomes if outcome.verdict is not Verdict.CAUGHT]
    return "\n".join([*lines, score(outcomes)])


def score(outcomes: Sequence[Outcome]) -> str:
    """In a sentence. Who does no harm counts neither way."""
    caught, counted = len(having(outcomes, Verdict.CAUGHT)), len(_counted(outcomes))
    return f"{caught} of {counted} mutants caught."


def verdict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same as an object for programs."""
    caught, counted = having(outcomes, Verdict.CAUGHT), _counted(outcomes)
    return {
        "mutants": len(outcomes),
        "caught": len(caught),
        "score": len(caught) / len(counted) if counted else 1.0,
        "survivors": [name(outcome) for outcome in having(outcomes, Verdict.SURVIVED)],
        "undecided": [name(outcome) for outcome in having(outcomes, Verdict.UNDECIDED)],
        "harmless": {name(outcome): reason(outcome) for outcome in having(outcomes, Verdict.HARMLESS)},
        "stale": [name(outcome) for outcome in having(outcomes, Verdict.STALE)],
        "unfit": {name(outcome): outcome.what for outcome in having(outcomes, Verdict.UNFIT)},
        "seeds": {name(outcome): f"{outcome.story}:{outcome.seed}" for outcome in caught},
        "simulated_s": {name(outcome): round(outcome.simulated_s, 1) for outcome in outcomes},
    }


def is_well(outcomes: Iterable[Outcome]) -> bool:
    """Whether everyone was caught who can be noticed."""
    return all(outcome.verdict in (Verdict.CAUGHT, Verdict.HARMLESS) for outcome in outcomes)


def name(outcome: Outcome) -> str:
    """The mutant's."""
    return outcome.mutant.name


def reason(outcome: Outcome) -> str:
    """Why it was not caught, as far as that is known; else what should have been seen."""
    match outcome.verdict:
        case Verdict.HARMLESS:
            return f"harmless. {outcome.mutant.harmless}"
        case Verdict.UNDECIDED:
            return f"not caught in the real time it was given. {outcome.mutant.rule} Expected: {outcome.mutant.shows}"
        case Verdict.SURVIVED:
            return f"SURVIVED. {outcome.mutant.rule} Expected: {outcome.mutant.shows}"
        case _:
            return f"{outcome.verdict}. {outcome.what}"


def having(outcomes: Iterable[Outcome], verdict: Verdict) -> list[Outcome]:
    """Those of whom just this is to be said."""
    return [outcome for outcome in outcomes if outcome.verdict is verdict]


def _counted(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict is not Verdict.HARMLESS]


def duration(seconds: float) -> str:
    """For a reader."""
    return f"{seconds / HOUR_S:.1f} simulated h" if seconds >= HOUR_S else f"{seconds:.0f} simulated s"
