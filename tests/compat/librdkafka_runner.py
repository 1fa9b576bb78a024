"""librdkafka's own test runner, built from its repository at a tag."""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from requirements import Requirement
from sources import sources
from suite import CACHE, Unmet, run_command
from suite_verdict import librdkafka_outcome

VERSION = "2.15.0"
"""The first with share consumers."""
RAPIDJSON = "v1.1.0"
NOTHING: Mapping[str, str] = MappingProxyType({})


class LibrdkafkaRunner:
    """The tests by number. A test is skipped if it is for a later version of Kafka than `kafka_version`."""

    BUILD_S, TEST_S = 1800, 900

    def __init__(self, kafka_version: str = "3.9.0") -> None:
        self.version, self._kafka_version = VERSION, kafka_version

    @functools.cached_property
    def _folder(self) -> Path:
        return sources("confluentinc/librdkafka", f"v{self.version}")

    def build(self) -> None:
        """Build the runner if it is not there. Raises Unmet."""
        if (self._folder / "tests" / "test-runner").exists():
            return
        output = CACHE / "output" / "librdkafka-build.log"
        # The tests that read statistics, as 0098 does, are skipped without RapidJSON.
        environment = {"CPLUS_INCLUDE_PATH": str(sources("Tencent/rapidjson", RAPIDJSON) / "include")}
        steps = ("./configure", "make -j4 libs", "make -j4 -C tests build")
        for step in steps:
            if run_command(step.split(), output, self.BUILD_S, cwd=self._folder, environment=environment) != 0:
                raise Unmet(Requirement.CC, f"librdkafka could not be built.\n{output.read_text()[-2000:]}")

    def outcome(
        self,
        number: str,
        config: Path,
        log: Path,
        output: Path,
        environment: Mapping[str, str] = NOTHING,
        *,
        is_quick: bool = False,
    ) -> str:
        """Run one test with a configuration file, and return the outcome. Appends what it prints to `output`."""
        # -K leaves out known failures, and -L what runs without brokers or with librdkafka's own.
        ended = run_command(
            ["./test-runner", "-p1", "-K", "-L", *(["-Q"] if is_quick else [])],
            log,
            self.TEST_S,
            cwd=self._folder / "tests",
            environment={
                # Not the library of the system.
                "LD_LIBRARY_PATH": "../src:../src-cpp",
                "TESTS": number,
                "RDKAFKA_TEST_CONF": str(config),
                "TEST_KAFKA_VERSION": self._kafka_version,
                **environment,
            },
        )
        text = log.read_text(errors="replace")
        with output.open("a") as whole:
            whole.write(f"==> {number}: {ended}\n{text}")
        return librdkafka_outcome(text, number, ended)
