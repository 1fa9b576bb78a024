"""kafka-python's own integration suite, from its source distribution."""

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from brokers import Brokers
from suite import CACHE, HERE, Suite, run_command
from suite_verdict import Outcomes

NAME, VERSION = "kafka-python", "3.0.12"
KAFKA_VERSION = "4.2.0"
UNPACKED = CACHE / f"kafka_python-{VERSION}"
LIMIT_S = 1200

OF_ONE_BROKER = ("test_create_partitions", "test_alter_replica_log_dirs", "test_delete_records")
"""Tests, by the beginnings of their names, that assign partitions to broker 0, expect the only replica of a partition
on the first broker, or expect the records of all partitions in one poll.
"""


class KafkaPython(Suite):
    """The integration tests, against an address; pytest runs them."""

    name, version = "kafka_python", VERSION
    settings: ClassVar = {
        # A test assigns new partitions to broker 0 by number.
        "node_id": "0",
        # Tests that create no topic write to partition 1 of an existing one.
        "num_partitions": "4",
        # Kafka's default, 6 s, exceeds the session timeouts of the suite.
        "group_min_session_timeout_ms": "1000",
        "group_initial_rebalance_delay_ms": "0",
    }

    def prepare(self) -> None:
        if not UNPACKED.is_dir():
            with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", NAME]
                subprocess.run([*pip, "--dest", place, f"{NAME}=={VERSION}"], check=True, timeout=LIMIT_S)
                (archive,) = Path(place).glob("*.tar.gz")
                with tarfile.open(archive) as packed:
                    packed.extractall(CACHE, filter="data")
        # Without it `test` is Python's own package of that name.
        (UNPACKED / "test" / "__init__.py").touch()
        (UNPACKED / "test" / "service.py").write_text((HERE / "kafka_python_service.py").read_text())

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        outcomes = place / "outcomes"
        environment = {
            "KAFKA_URI": f"kafka://{brokers.bootstrap.split(',')[0]}",
            "KAFKA_VERSION": KAFKA_VERSION,
            "KAFKA_ROOT": str(UNPACKED),
            "COMPAT_OUTCOMES": str(outcomes),
            "PYTHONPATH": str(HERE),
        }
        options = ["-o", "addopts=", "--timeout=30", "-p", "outcome_plugin", "--quiet", "--show-capture=no"]
        pytest = [sys.executable, "-m", "pytest", "test/integration", *options, "--tb=short", "--disable-warnings"]
        if brokers.count > 1:
            pytest += [f"--deselect=test/integration/test_admin_integration.py::{test}" for test in OF_ONE_BROKER]
        run_command([*pytest, *words], output, LIMIT_S, cwd=UNPACKED, environment=environment)
        lines = outcomes.read_text().splitlines() if outcomes.exists() else []
        return {known["test"]: known["outcome"] for known in map(json.loads, lines)}
