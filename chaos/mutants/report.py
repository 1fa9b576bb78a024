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
            return f"{name:48} caught by {seed} after {_duration(outcome.simulated_s)}: {outcome.what}"
        case Verdict.SURVIVED | Verdict.HARMLESS:
            return f"{name:48} {verdict} {outcome.seeds} seeds, {_duration(outcome.simulated_s)}"
        case Verdict.STALE | Verdict.UNFIT:
            return f"{name:48} {verdict}: {outcome.what}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """The score, and by name whoever was not caught."""
    lines = [f"{name(outcome)}: {reason(outcome)}" for outcome in outcomes if outcome.verdict is not Verdict.CAUGHT]
    caught, counted = len(_with(outcomes, Verdict.CAUGHT)), len(_counted(outcomes))
    return "\n".join([*lines, f"{caught} of {counted} mutants caught."])


def verdict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same as an object for programs."""
    caught, counted = _with(outcomes, Verdict.CAUGHT), _counted(outcomes)
    return {
        "mutants": len(outcomes),
        "caught": len(caught),
        "score": len(caught) / len(counted) if counted else 1.0,
        "survivors": [name(outcome) for outcome in _with(outcomes, Verdict.SURVIVED)],
        "harmless": {name(outcome): reason(outcome) for outcome in _with(outcomes, Verdict.HARMLESS)},
        "stale": [name(outcome) for outcome in _with(outcomes, Verdict.STALE)],
        "unfit": {name(outcome): outcome.what for outcome in _with(outcomes, Verdict.UNFIT)},
        "seeds": {name(outcome): f"{outcome.story}:{outcome.seed}" for outcome in caught},
        "simulated_s": {name(outcome): round(outcome.simulated_s, 1) for outcome in outcomes},
    }


def is_well(outcomes: Iterable[Outcome]) -> bool:
    """Whether everyone was caught who can be noticed."""
    return all(outcome.verdict in (Verdict.CAUGHT, Verdict.HARMLESS) for outcome in outcomes)


def name(outcome: Outcome) -> str:
    return outcome.mutant.name


def reason(outcome: Outcome) -> str:
    """Why it was not caught, as far as that is known; else what should have been seen."""
    match outcome.verdict:
        case Verdict.HARMLESS:
            return f"harmless. {outcome.mutant.harmless}"
        case Verdict.SURVIVED:
            return f"SURVIVED. {outcome.mutant.rule} Expected: {outcome.mutant.shows}"
        case _:
            return f"{outcome.verdict}. {outcome.what}"


def _with(outcomes: Iterable[Outcome], verdict: Verdict) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict is verdict]


def _counted(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict is not Verdict.HARMLESS]


def _duration(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} simulated h" if seconds >= HOUR_S else f"{seconds:.0f} simulated s"
