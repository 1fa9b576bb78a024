"""confluent-kafka's tests of its share consumer, and of groups that change between the two protocols.

Left out are the tests of deserializers, which need a schema registry. Those of throttling skip themselves: they look
for Kafka's scripts.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from brokers import Brokers
from secured_suites import pytest_outcomes
from sources import sources
from suite import HERE, Suite
from suite_verdict import Outcomes

TESTS = ("share_consumer", "consumer/test_consumer_upgrade_downgrade.py")
WITHOUT = "share_consumer/test_share_consumer_deserialization.py"
INTEGRATION = "tests/integration"
LIMIT_S = 1800.0


class ConfluentGroups(Suite):
    """The tests one after the other; `words` are further arguments of pytest."""

    name, version = "confluent_groups", "2.15.0"
    settings: ClassVar = {
        "group_share_record_lock_duration_ms": "1000",
        "group_share_min_record_lock_duration_ms": "1000",
    }
    """The locks of the suite's own brokers."""

    def prepare(self) -> None:
        sources("confluentinc/confluent-kafka-python", f"v{self.version}")

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        folder = sources("confluentinc/confluent-kafka-python", f"v{self.version}")
        shutil.copytree(folder / "tests", place / "tests")
        shutil.copy(HERE / "confluent_kafka_conftest.py", place / INTEGRATION / "conftest.py")
        # Its fixture deletes all topics after a module, which may be those of tests that run at the same time.
        (place / INTEGRATION / "share_consumer" / "conftest.py").unlink()
        environment = {
            "SUITE_BROKERS": brokers.bootstrap,
            "SUITE_REPLICAS": str(brokers.count),
            "TEST_CONSUMER_GROUP_PROTOCOL": "consumer",
        }
        tests = [f"{INTEGRATION}/{test}" for test in TESTS]
        # Most of the time is spent in waiting.
        chosen = [*tests, f"--ignore={INTEGRATION}/{WITHOUT}", "--numprocesses=4", *words]
        return pytest_outcomes(chosen, "", place, output, environment, place, limit_s=LIMIT_S)
