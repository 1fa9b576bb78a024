"""librdkafka's tests of compacted topics, and Kafka's tools for the start of a log: deleted and archived records.

Test 0011 produces batches, and records without a key to a compacted topic. Test 0077 compares what compaction leaves of
batches in several codecs. Of franz-go, `TestTxnEtl` in `franz_go_suite.py` is the only test that reads
`__consumer_offsets` and transactions while they are compacted; the tests of its own compaction are of its fake broker.
"""

import functools
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from brokers import Brokers, running
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_tools import TOOL_LIMIT_S, JavaTools
from librdkafka_runner import LibrdkafkaRunner
from suite import Suite
from suite_verdict import Outcomes

from cordwood.chaos.live.process import wait_for

TOPIC, RECORDS, ANSWER_S, ARCHIVED_S = "orders", 300, 30.0, 60.0
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = "-2", "-1", "-4", "-5"


class Librdkafka(Suite):
    """Tests by number."""

    name = "librdkafka"
    settings: ClassVar = {"log_cleaner_backoff_ms": "1000", "auto_create_topics_enable": "true"}
    NUMBERS: ClassVar = ("0011", "0077")

    def __init__(self) -> None:
        # Later tools refuse segments as small as those of the tests.
        self._tools, self._runner = JavaTools("3.9.2"), LibrdkafkaRunner()
        self.version = self._runner.version

    def prepare(self) -> None:
        self._tools.fetch()
        self._runner.build()

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        config = place / "test.conf"
        config.write_text(f"bootstrap.servers={brokers.bootstrap}\n")
        # The tests create topics with Kafka's tool.
        environment = {"KAFKA_PATH": str(self._tools.home(place)), "BROKERS": brokers.bootstrap}
        return {
            number: self._runner.outcome(number, config, place / f"{number}.log", output, environment)
            for number in self.NUMBERS
            if not words or number in words
        }


class KafkaLogStarts(Suite):
    """`kafka-delete-records` and `kafka-get-offsets`, which use the AdminClient of Java; `words` select scenarios."""

    name = "kafka_log_starts"

    def __init__(self, version: str) -> None:
        self.version = version
        self._tools = JavaTools(version)

    @contextmanager
    def brokers(self, count: int) -> Iterator[Brokers]:
        with tempfile.TemporaryDirectory(prefix="cordwood-archive-") as place:
            settings = {"archive_url": f"file://{place}/archive", "log_retention_check_interval_ms": "200"}
            with running(count, settings) as brokers:
                yield brokers

    def prepare(self) -> None:
        self._tools.fetch()

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        outcomes: Outcomes = {}
        for name, scenario in SCENARIOS.items():
            if words and name not in words:
                continue
            try:
                scenario(functools.partial(self._said, brokers), brokers, place)
                outcomes[name] = "passed"
            except Exception:
                outcomes[name] = "failed"
                with output.open("a") as log:
                    log.write(f"==> {name}\n{traceback.format_exc()}")
        return outcomes

    def _said(self, brokers: Brokers, tool: str, *words: str) -> list[str]:
        """Run a tool and return its lines."""
        done = subprocess.run(
            self._tools.command(tool, "--bootstrap-server", brokers.bootstrap, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{tool} {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()


Tool = Callable[..., list[str]]


def records_are_deleted(tool: Tool, brokers: Brokers, place: Path) -> None:
    """Delete records of one partition up to an offset, and of another one up to its end."""
    _fill(brokers, "deleted", partitions=2, configs={})
    request = place / "delete.json"
    request.write_text(
        '{"version": 1, "partitions": [{"topic": "deleted", "partition": 0, "offset": 7},'
        ' {"topic": "deleted", "partition": 1, "offset": -1}]}'
    )
    said = tool("DeleteRecordsCommand", "--offset-json-file", str(request))
    assert any("deleted-0\tlow_watermark: 7" in line for line in said), said
    ends = _offsets(tool, "deleted", LATEST)
    assert _offsets(tool, "deleted", EARLIEST) == {0: 7, 1: ends[1]}


def local_and_archived_offsets_are_found(tool: Tool, brokers: Brokers, _place: Path) -> None:
    """Ask for the first offset on the disks and the last one in the archive, of a log that is mostly archived."""
    configs = {"remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "30000"}
    _fill(brokers, "archived", partitions=1, configs=configs)
    found: dict[str, int] = {}

    def is_archived() -> bool:
        for time in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST):
            found[time] = _offsets(tool, "archived", time).get(0, -1)
        return 0 == found[EARLIEST] < found[EARLIEST_LOCAL] <= found[LATEST_TIERED] + 1 < found[LATEST]

    assert wait_for(is_archived, ARCHIVED_S), found
    assert found[LATEST] == RECORDS


SCENARIOS: Mapping[str, Callable[[Tool, Brokers, Path], None]] = {
    "records_are_deleted": records_are_deleted,
    "local_and_archived_offsets": local_and_archived_offsets_are_found,
}


def _fill(brokers: Brokers, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, brokers.count, config=dict(configs))])[topic].result(ANSWER_S)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "batch.size": 4000})
    for number in range(RECORDS):
        producer.produce(topic, b"%01000d" % number, partition=number % partitions)
    assert producer.flush(ANSWER_S) == 0


def _offsets(tool: Tool, topic: str, time: str) -> dict[int, int]:
    """Return the offsets that `kafka-get-offsets` prints as topic:partition:offset."""
    lines = tool("GetOffsetShell", "--topic", topic, "--time", time)
    rows = [line.split(":") for line in lines if line.startswith(f"{topic}:")]
    return {int(partition): int(offset) for _, partition, offset in rows if offset}
