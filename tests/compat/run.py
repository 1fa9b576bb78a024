"""The suites of other projects against Cordwood: `make compat`.

Each suite runs against one broker and against three. A failure that the suite's list does not allow fails the run.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from aiokafka_suite import Aiokafka
from compaction_suites import KafkaLogStarts, Librdkafka
from confluent_groups_suite import ConfluentGroups
from franz_go_suite import FranzGo, FranzGoGroups
from group_answers_suite import GroupAnswers
from kafka_admin_suite import KafkaAdmin
from kafka_connect_suite import KafkaConnect
from kafka_groups_suite import KafkaGroups
from kafka_python_suite import KafkaPython
from kafka_streams_suite import KafkaStreams
from kafka_tools_suite import KafkaTools
from librdkafka_groups_suite import LibrdkafkaGroups, LibrdkafkaShareGroups
from librdkafka_plain_suites import LibrdkafkaDefaults, LibrdkafkaTransactions
from requirements import required
from secured_clients_suite import SecuredClients
from secured_suites import SecuredAiokafka, SecuredConfluent, SecuredFranzGo, SecuredKafkaPython, SecuredLibrdkafka
from suite import CACHE, Suite, Unmet
from suite_verdict import Verdict, judge

SUITES: Sequence[Suite] = (
    KafkaPython(),
    Aiokafka(),
    FranzGo(),
    KafkaTools("3.9.2"),
    KafkaTools("4.3.1"),
    KafkaAdmin("3.9.2"),
    KafkaAdmin("4.3.1"),
    KafkaStreams("4.3.1"),
    KafkaConnect("4.3.1"),
    KafkaLogStarts("4.3.1"),
    Librdkafka(),
    FranzGoGroups(),
    KafkaGroups("4.3.1"),
    ConfluentGroups(),
    LibrdkafkaGroups(),
    LibrdkafkaShareGroups(),
    LibrdkafkaTransactions(),
    LibrdkafkaDefaults(),
    GroupAnswers(),
    SecuredKafkaPython(),
    SecuredAiokafka(),
    SecuredConfluent(),
    SecuredFranzGo(),
    SecuredLibrdkafka(),
    SecuredClients(),
)
"""Java clients before 4.0 speak the first version of the transaction protocol, later ones the second."""


def main() -> int:
    names = sorted({suite.name for suite in SUITES})
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*names, []], help="suites to run; all, if none is named")
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="run against this number of brokers only")
    parser.add_argument("--words", nargs="*", default=[], help="arguments of the suites' own test runners")
    options = parser.parse_args()
    console = Console(highlight=False)
    (CACHE / "output").mkdir(parents=True, exist_ok=True)
    failed = 0
    for suite in SUITES:
        if options.suites and suite.name not in options.suites:
            continue
        counts = [count for count in suite.counts if options.brokers in (None, count)]
        if not counts:
            console.print(f"{suite.name} {suite.version}: skipped: it needs {suite.counts[0]} brokers")
            continue
        console.print(f"{suite.name} {suite.version} is prepared ...")
        try:
            suite.prepare()
        except Unmet as unmet:
            is_required = unmet.requirement in required()
            console.print(f"{suite.name} {suite.version}: {'FAILED' if is_required else 'skipped'}: {unmet}")
            failed += is_required
            continue
        for count in counts:
            failed += not passes(suite, count, options.words, console)
    return 1 if failed else 0


def passes(suite: Suite, count: int, words: Sequence[str], console: Console) -> bool:
    """Run a suite, print its verdict, and return whether every failure is allowed."""
    title = f"{suite.name} {suite.version}, {count} {'broker' if count == 1 else 'brokers'}"
    console.print(f"{title} ...")
    stem = CACHE / "output" / f"{suite.name}-{suite.version}-{count}"
    Path(f"{stem}.log").unlink(missing_ok=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cordwood-compat-") as place, suite.brokers(count) as brokers:
        try:
            outcomes = suite.run(brokers, Path(place), Path(f"{stem}.log"), words)
        finally:
            Path(f"{stem}-brokers.log").write_text(brokers.logs())
    allowed = suite.allowed()
    verdict = judge(outcomes, {test: why for test, why in allowed.items() if not words or test in outcomes})
    report(console, verdict, allowed)
    console.print(
        f"{title}: {len(verdict.passed)} passed, {len(verdict.skipped)} skipped, {len(verdict.allowed)} failed as the"
        f" list allows, {len(verdict.broken)} failed, {time.monotonic() - begin:.0f} s.",
        soft_wrap=True,
    )
    if not outcomes:
        console.print(f"The suite did not run: {stem.relative_to(CACHE.parent.parent)}.log")
    return bool(outcomes) and not verdict.broken


def report(console: Console, verdict: Verdict, allowed: Mapping[str, str]) -> None:
    """Print every test whose outcome needs a look."""
    for test in verdict.allowed:
        console.print(f"allowed   {test}: {allowed[test]}", soft_wrap=True, markup=False)
    for test in verdict.passing:
        console.print(f"now passes; take it off the list   {test}", soft_wrap=True, markup=False)
    for test in verdict.vanished:
        console.print(f"not in the suite; take it off the list   {test}", soft_wrap=True, markup=False)
    for test in verdict.broken:
        console.print(f"FAILED    {test}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    sys.exit(main())
