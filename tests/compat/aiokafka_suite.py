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

OF_ONE_BROKER = ("test_metadata", "test_describe_configs_broker", "test_describe_cluster")
"""Tests of the module `test_admin` that count the brokers."""


class Aiokafka(Suite):
    """The modules whose tests need brokers; `words` are further arguments of pytest."""

    name, version = "aiokafka", SecuredAiokafka.version
    # The tests write to topics that do not exist.
    settings: ClassVar = {"auto_create_topics_enable": "true", "num_partitions": "2"}

    def prepare(self) -> None:
        sources("aio-libs/aiokafka", f"v{self.version}")

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        # Not beside the package's own folder, which would be imported in place of the installed one.
        shutil.copytree(sources("aio-libs/aiokafka", f"v{self.version}") / "tests", place / "tests")
        shutil.copy(HERE / "aiokafka_conftest.py", place / "tests" / "conftest.py")
        tests = [f"tests/{module}.py" for module in TESTS]
        chosen = [*tests, "-k", "not ssl", "--numprocesses=2", *words]
        if brokers.count > 1:
            chosen += [f"--deselect=tests/test_admin.py::TestAdmin::{test}" for test in OF_ONE_BROKER]
        environment = {"SUITE_BROKERS": brokers.bootstrap.split(",")[0]}
        return pytest_outcomes(chosen, "", place, output, environment, limit_s=LIMIT_S)
