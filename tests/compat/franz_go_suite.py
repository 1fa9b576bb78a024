"""franz-go's tests of chained groups, from its module: `TestTxnEtl`, `TestGroupETL` and `TestShareGroup*`.

A producer writes records, and three groups in a row copy them from topic to topic while members join and leave, with
`TestTxnEtl` in transactions. Each group must see each record once. A variant is an assignor of partitions and a group
protocol. Share groups also release and reject records.
"""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from brokers import Brokers
from requirements import Requirement
from suite import CACHE, ROOT, Suite, Unmet, run_command
from suite_verdict import Outcomes, go_outcomes

MODULE = ROOT / "bench" / "load"
"""A module that requires franz-go: its go.mod and go.sum pin the version that is tested."""
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = "20000"
BUILD_LIMIT_S, LIMIT_S = 600, 900


class FranzGo(Suite):
    """All variants of the test at once, as upstream runs them."""

    name = "franz_go"
    pattern = "TestTxnEtl"
    """A regular expression for the names of tests."""

    def __init__(self) -> None:
        pinned = re.search(r"twmb/franz-go v(\S+)", (MODULE / "go.mod").read_text())
        assert pinned is not None
        self.version = pinned[1]
        self.program = CACHE / f"kgo-{self.version}.test"

    def prepare(self) -> None:
        if shutil.which("go") is None:
            raise Unmet(Requirement.GO, "there is no Go here")
        build = ["go", "test", "-c", "-o", self.program, PACKAGE]
        output = CACHE / "output" / f"{self.name}-build.log"
        if run_command(build, output, BUILD_LIMIT_S, cwd=MODULE) != 0:
            raise Unmet(Requirement.GO, f"Go could not build it.\n{output.read_text()[-2000:]}")

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        environment = {
            "KGO_TEST_RECORDS": os.environ.get("KGO_TEST_RECORDS", RECORDS),
            "KGO_TEST_RF": str(brokers.count),
            "KGO_SEEDS": brokers.bootstrap,
        }
        events = place / "events"
        test = ["go", "tool", "test2json", self.program, "-test.v=test2json", f"-test.run=^({self.pattern})$"]
        ended = run_command([*test, f"-test.timeout={LIMIT_S}s", *words], events, LIMIT_S + 10, environment=environment)
        lines = [line for line in events.read_text().splitlines() if line.endswith("}")]
        with output.open("a") as log:
            log.writelines(json.loads(line).get("Output", "") for line in lines)
        outcomes = go_outcomes(lines)
        return outcomes if ended == 0 or "failed" in outcomes.values() else {**outcomes, self.pattern: "failed"}


class FranzGoGroups(FranzGo):
    """Groups of both protocols without transactions, regular expressions on the broker, and share groups."""

    name = "franz_go_groups"
    pattern = "TestGroupETL|TestShareGroup.*|Test848RegexBrokerResolves"
