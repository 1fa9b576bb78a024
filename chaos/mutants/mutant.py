"""A mutant: one small change to the source that takes out one rule, check or sync."""

from dataclasses import dataclass
from enum import StrEnum


class Scenario(StrEnum):
    """The simulated scenarios that a mutant can be run in."""

    LOGS = "logs"
    REPLICAS = "replicas"
    TURNS = "turns"
    QUORUM = "quorum"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    """Whole brokers, and transactional clients among theirs."""
    SHARES = "shares"
    """One share partition, its leaders and its share coordinators, without brokers."""
    CONSUMER_GROUPS = "consumer-groups"
    """Whole brokers, and a group of the consumer protocol (KIP-848) among their clients."""
    SHARE_GROUPS = "share-groups"
    """Whole brokers, and a share group (KIP-932) among their clients."""
    BROKERS = "brokers"
    """Whole brokers and their clients: slower, and everything together."""


class Stale(Exception):
    """The source has changed: the text that a mutant replaces is missing, or is there more than once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`find` occurs exactly once in `file`, a path within the package, and is replaced by `replacement`.

    `rule` is the rule that the change breaks (by the numbers of docs/rules.md), `shows` the expected symptom, and
    `scenario` the scenario to search if no test fails. The mutant's killer is in killers.json.
    """

    name: str
    file: str
    find: str
    replacement: str
    rule: str
    shows: str
    scenario: Scenario = Scenario.REPLICAS

    def applied_to(self, source: str) -> str:
        """Return the file with the change. Raises Stale."""
        if (count := source.count(self.find)) != 1:
            raise Stale(f"{self.name}: its text is in {self.file} {count} times, and belongs there once")
        return source.replace(self.find, self.replacement)
