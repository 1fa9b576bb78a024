"""Kafka's system test of transactions and its operators' tool, with Java clients of both transaction protocols.

`TransactionalMessageCopier` copies a topic in transactions while copiers or brokers are killed, as in kafkatest's
`transactions_test.py`: the copy has each record once and in order. `kafka-transactions` shows and ends open ones, and
`kafka-configs` changes quotas that Kafka's clients then obey.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import client_quotas
import transaction_copies
import transaction_tables
from brokers import Brokers
from java_tools import JavaTools
from suite import Suite
from suite_verdict import Outcomes

Scenario = Callable[[JavaTools, Brokers, Path], None]
"""Raises AssertionError. The path is an empty directory."""

SCENARIOS: Mapping[str, Scenario] = {
    "copiers_killed": transaction_copies.copiers_are_killed,
    "copiers_of_a_group_with_aborts": transaction_copies.copiers_of_a_group_abort,
    "brokers_killed": transaction_copies.brokers_are_killed,
    "open_transactions": transaction_tables.open_transactions_are_shown_and_ended,
    "hanging_transactions": transaction_tables.hanging_transactions_are_found_and_ended,
    "quotas": client_quotas.quotas_are_set_shown_and_removed,
    "quotas_of_clients": client_quotas.clients_obey_their_quotas,
}


class KafkaTools(Suite):
    """The scenarios with one version of Kafka's tools; `words` select scenarios."""

    name = "kafka_tools"
    scenarios: Mapping[str, Scenario] = SCENARIOS

    def __init__(self, version: str, tools: JavaTools | None = None) -> None:
        self.version = version
        self._tools = tools or JavaTools(version)

    def prepare(self) -> None:
        self._tools.fetch()

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        outcomes: Outcomes = {}
        for name, scenario in self.scenarios.items():
            if words and name not in words:
                continue
            directory = place / name
            directory.mkdir()
            try:
                scenario(self._tools, brokers, directory)
                outcomes[name] = "passed"
            except Exception:
                outcomes[name] = "failed"
                with output.open("a") as log:
                    log.write(f"==> {name}\n{traceback.format_exc()}")
                    for path in sorted(filter(Path.is_file, directory.iterdir())):
                        log.write(f"==> {name}: {path.name}\n{path.read_text(errors='replace')}")
        return outcomes
