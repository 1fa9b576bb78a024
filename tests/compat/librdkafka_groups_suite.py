"""librdkafka's tests of consumer groups with the consumer protocol, and of share groups."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from brokers import Brokers
from librdkafka_runner import VERSION, LibrdkafkaRunner
from suite import Suite
from suite_verdict import Outcomes

KAFKA = "4.3.0"
AT_ONCE, TIMES = 5, 3
"""Number of tests that run at the same time, as librdkafka has it, and a factor of the tests' own limits.

Most of the time is spent in waiting. librdkafka's own runner has a factor of 2.7 with five tests at once: the pauses of
0170 alone take longer than its limit.
"""


class LibrdkafkaGroups(Suite):
    """Tests of consumer groups by number, with `group.protocol=consumer` in librdkafka's quick mode."""

    name, version = "librdkafka_groups", VERSION
    # The tests expect automatic creation, and write to several partitions of such topics.
    settings: ClassVar = {"auto_create_topics_enable": "true", "num_partitions": "4"}
    numbers: ClassVar[Sequence[str]] = (
        *("0018", "0019", "0029", "0030", "0033", "0045", "0050", "0051", "0056", "0061", "0069", "0089", "0091"),
        *("0102", "0106", "0113", "0116", "0118", "0120", "0122", "0130", "0132", "0137"),
    )
    is_quick: ClassVar[bool] = True

    def __init__(self) -> None:
        self._runner = LibrdkafkaRunner(KAFKA)

    def prepare(self) -> None:
        self._runner.build()

    def run(self, brokers: Brokers, place: Path, output: Path, words: Sequence[str]) -> Outcomes:
        config, environment = place / "test.conf", {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}
        config.write_text(f"bootstrap.servers={brokers.bootstrap}\ntest.timeout.multiplier={TIMES}\n")

        def outcome(number: str) -> str:
            log = place / f"{number}.log"
            return self._runner.outcome(number, config, log, output, environment, is_quick=self.is_quick)

        numbers = [number for number in self.numbers if not words or number in words]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(numbers, pool.map(outcome, numbers), strict=True))


class LibrdkafkaShareGroups(LibrdkafkaGroups):
    """Tests of share consumers by number."""

    name = "librdkafka_share_groups"
    # The tests delete topics while others write to them, and lock records for three seconds.
    settings: ClassVar = {"group_share_min_record_lock_duration_ms": "1000", "num_partitions": "4"}
    numbers: ClassVar[Sequence[str]] = (
        *("0170", "0171", "0172", "0173", "0174", "0175", "0176", "0177", "0178", "0179", "0180", "0181"),
        *("0184", "0185"),
    )
    is_quick: ClassVar[bool] = False
