"""A mutant: one small change to the source that takes out one rule, check or sync."""

from dataclasses import dataclass
from enum import StrEnum


class Scenario(StrEnum):
    """The simulated stories that a mutant can be told in."""

    LOGS = "logs"
    REPLICAS = "replicas"
    TURNS = "turns"
    QUORUM = "quorum"
    GROUPS = "groups"
    BROKERS = "brokers"
    """Whole brokers and their clients: slower, and all of it together."""


class Stale(Exception):
    """The source has moved on: the text that a mutant is to replace is not there, or not there alone."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`find` stands exactly once in `file`, a path within the package, and becomes `replacement`.

    `rule` is what is broken by that (by the numbers of docs/rules.md), `shows` how that is expected to come out, and
    `story` where it is looked for if no test notices. Its killer is in killers.json.
    """

    name: str
    file: str
    find: str
    replacement: str
    rule: str
    shows: str
    story: Scenario = Scenario.REPLICAS

    def applied_to(self, source: str) -> str:
        """The file with the change. Raises Stale."""
        if (count := source.count(self.find)) != 1:
            raise Stale(f"{self.name}: its text is in {self.file} {count} times, and belongs there once")
        return source.replace(self.find, self.replacement)
