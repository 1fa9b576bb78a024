"""aiokafka's own tests of clients against brokers, from its repository."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from brokers import Brokers
from secured_suites import SecuredAiokafka, pytest_outcomes
from sources import sources
from suite import HERE, Suite
from suite_verdict import Outcomes

LIMIT_S = 1500.0
TESTS = (
    *("test_admin", "test_client", "test_conn", "test_consumer", "test_coordinator", "test_fetcher", "test_pep492"),
    *("test_producer", "test_sender", "test_transactional_consumer", "test_transactional_producer"),
)

OF_ONE_BROKER = (
    *("test_admin.py::TestAdmin::test_metadata", "test_admin.py::TestAdmin::test_describe_configs_broker"),
    "test_admin.py::TestAdmin::test_describe_cluster",
    "test_client.py::TestKafkaClientIntegration::test_concurrent_send_on_different_connection_groups",
    "test_client.py::TestKafkaClientIntegration::test_no_concurrent_send_on_connection",
    "test_sender.py::TestSender::test_sender__handler_base_do",
)
"""Tests that count the brokers, send requests for a partition to any of them, or name broker 0."""


class Aiokafka(Suite):
    """The modules whose tests need brokers; `words` are further arguments of pytest."""

    name, version = "aiokafka", SecuredAiokafka.version
    settings: ClassVar = {
        # A test sends to broker 0 by number.
        "node_id": "0",
        # The tests write to topics that do not exist.
        "auto_create_topics_enable": "true",
        "num_partitions": "2",
        # They wait two seconds for a new group.
        "group_initial_rebalance_delay_ms": "0",
    }

    def prepare(self) -> None:
        sources("aio-libs/aiokafka", f"v{self.version}")

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        # Not beside the package's own folder, which would be imported in place of the installed one.
        shutil.copytree(sources("aio-libs/aiokafka", f"v{self.version}") / "tests", place / "tests")
        shutil.copy(HERE / "aiokafka_conftest.py", place / "tests" / "conftest.py")
        tests = [f"tests/{module}.py" for module in TESTS]
        # One after the other: its tests of transactions share a transactional id, and would fence each other.
        chosen = [*tests, "-k", "not ssl", *words]
        if brokers.count > 1:
            chosen += [f"--deselect=tests/{test}" for test in OF_ONE_BROKER]
        environment = {"SUITE_BROKERS": brokers.bootstrap.split(",")[0]}
        return pytest_outcomes(chosen, "", place, output, environment, limit_s=LIMIT_S)
