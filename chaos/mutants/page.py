"""The outcomes of a hunt as a page of documentation."""

from collections.abc import Sequence

from cordwood.chaos.mutants.hunt import Outcome, Verdict
from cordwood.chaos.mutants.report import duration, having, name, reason, score

HEAD = """# Bugs planted on purpose

Each of these mutants takes one rule, check or sync out of a copy of the source. `cordwood chaos mutants` tells it
simulated stories ([chaos.md](chaos.md)) until one fails: where none does, the simulator is blind. `--only NAME` hunts
one of them, and the same seed catches it in the same way. The rules are those of [rules.md](rules.md), by number.
"""


def page(outcomes: Sequence[Outcome], commit: str) -> str:
    """Markdown: the score, who was caught and how soon, and by name and reason who was not."""
    caught = having(outcomes, Verdict.CAUGHT)
    parts = [HEAD, f"Commit {commit}: {score(outcomes)}\n", _table(caught)]
    for verdict, title in (
        (Verdict.HARMLESS, "Nobody can notice these"),
        (Verdict.SURVIVED, "Not caught"),
        (Verdict.UNDECIDED, "Not caught in the real time that they were given"),
        (Verdict.UNFIT, "Of these nothing can be said"),
        (Verdict.STALE, "These do not fit the source any more"),
    ):
        if others := having(outcomes, verdict):
            parts.append(f"## {title}\n\n" + "".join(f"- `{name(outcome)}`: {reason(outcome)}\n" for outcome in others))
    return "\n".join(parts)


def _table(caught: Sequence[Outcome]) -> str:
    rows = "".join(
        f"| `{name(outcome)}` | {outcome.mutant.rule} | {outcome.story} {outcome.seed} | {outcome.seeds} "
        f"| {duration(outcome.simulated_s)} |\n"
        for outcome in caught
    )
    return "| mutant | what it breaks | story and seed | seeds tried | caught after |\n|---|---|---|---|---|\n" + rows
