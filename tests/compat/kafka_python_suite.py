"""kafka-python's own integration suite, from its source distribution, against a Cordwood broker: `make compat`."""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "support"))

from broker_fixture import RunningBroker  # noqa: E402
from suite_verdict import Verdict, allowed_failures, judge  # noqa: E402

NAME, VERSION = "kafka-python", "3.0.12"
KAFKA_VERSION = "4.2.0"
CACHE = ROOT / "build" / "compat"
LIMIT_S = 1200
SETTINGS = {
    # A test assigns new partitions to broker 0 by number.
    "node_id": "0",
    # Tests that create no topic write to partition 1 of an existing one.
    "num_partitions": "4",
    # Kafka's default, 6 s, exceeds the session timeouts of the suite.
    "group_min_session_timeout_ms": "1000",
    "group_initial_rebalance_delay_ms": "0",
}


def main() -> int:
    console = Console(highlight=False)
    allowed = allowed_failures((HERE / "kafka_python_allowed_failures.txt").read_text())
    suite = unpacked_suite(console)
    with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place:
        broker = RunningBroker(Path(place) / "data", **SETTINGS).start()
        try:
            outcomes = run(suite, broker.port, Path(place) / "outcomes", sys.argv[1:])
        finally:
            broker.stop()
            (CACHE / "broker.log").write_text(broker.output)
    if not outcomes:
        console.print("The suite did not run.")
        return 1
    chosen = {test: reason for test, reason in allowed.items() if test in outcomes} if sys.argv[1:] else allowed
    return report(console, judge(outcomes, chosen), allowed)


def unpacked_suite(console: Console) -> Path:
    """Return the source distribution, downloaded and unpacked once, with our service module in it."""
    suite = CACHE / f"kafka_python-{VERSION}"
    if not suite.is_dir():
        console.print(f"Fetching {NAME} {VERSION} ...")
        with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", NAME]
            subprocess.run([*pip, "--dest", place, f"{NAME}=={VERSION}"], check=True)
            (archive,) = Path(place).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(CACHE, filter="data")
    # Without it `test` is Python's own package of that name.
    (suite / "test" / "__init__.py").touch()
    (suite / "test" / "service.py").write_text((HERE / "service.py").read_text())
    return suite


def run(suite: Path, port: int, outcomes: Path, words: list[str]) -> dict[str, str]:
    """Run the suite and return outcomes by test id; `words` are further arguments of pytest, to select tests."""
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://127.0.0.1:{port}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(suite),
        "COMPAT_OUTCOMES": str(outcomes),
        "PYTHONPATH": str(HERE),
    }
    options = ["-o", "addopts=", "--timeout=30", "-p", "outcome_plugin", "--quiet", "--show-capture=no", "--tb=short"]
    pytest = [sys.executable, "-m", "pytest", "test/integration", *options, "--disable-warnings", *words]
    subprocess.run(pytest, cwd=suite, env=environment, timeout=LIMIT_S, check=False)
    lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    return {known["test"]: known["outcome"] for known in map(json.loads, lines)}


def report(console: Console, verdict: Verdict, allowed: dict[str, str]) -> int:
    for test in verdict.allowed:
        console.print(f"allowed   {test}: {allowed[test]}", soft_wrap=True, markup=False)
    for test in verdict.mended:
        console.print(f"now passes; take it off the list   {test}", soft_wrap=True, markup=False)
    for test in verdict.vanished:
        console.print(f"not in the suite; take it off the list   {test}", soft_wrap=True, markup=False)
    for test in verdict.broken:
        console.print(f"FAILED    {test}", soft_wrap=True, markup=False)
    console.print(
        f"{NAME} {VERSION}: {len(verdict.passed)} passed, {len(verdict.skipped)} skipped, "
        f"{len(verdict.allowed)} failed as the list allows, {len(verdict.broken)} failed.",
        soft_wrap=True,
    )
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
