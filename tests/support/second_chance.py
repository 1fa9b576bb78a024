"""The runner of the test suite: a test that fails beside others runs a second time, alone.

`python tests/support/second_chance.py [arguments of pytest]` runs pytest. Tests that failed, crashed, hung or never ran
run again in one process if they are at most `SECOND_CHANCES_MAX`. A test that fails again fails the build. A test that
passes then is flaky: its first failure is printed at the end and written to build/flaky.txt.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SECOND_CHANCES_MAX = 8
"""The limit of second chances: more failures mean a broken build or a broken machine, and a second run adds nothing."""
STALL_S = 900.0
"""The longest time without a report: longer than any test's timeout with the grace of `results_log`."""
MARK = "SUITE_RUN"
"""The environment variable that marks the processes of a run, including orphans."""
INTERRUPTED = 2
"""pytest's exit code after Ctrl-C."""


@dataclass(slots=True)
class Results:
    """The outcomes of one run, by test id."""

    collected: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    """The text of the first failure, by test."""
    skips: dict[str, str] = field(default_factory=dict)
    """The reason, by test."""
    uncollected: list[str] = field(default_factory=list)
    """Files with a collection error."""

    @classmethod
    def read(cls, lines: Iterable[str]) -> "Results":
        """Fold the lines of `results_log`. A crash may have cut the last line short."""
        results = cls()
        for text in lines:
            if text.endswith("\n"):
                results._add(json.loads(text))
        return results

    def _add(self, line: dict[str, Any]) -> None:
        if "tests" in line:
            self.collected = line["tests"]
        elif line["at"] == "collect":
            self.uncollected.append(line["test"])
        elif line["outcome"] == "failed":
            self.failures.setdefault(line["test"], line.get("text", ""))
        elif line["outcome"] == "skipped":
            self.skips[line["test"]] = line.get("text", "")
        elif line["at"] == "teardown":
            self.ended.add(line["test"])

    def suspects(self) -> list[str]:
        """Return the tests that failed or did not end, for example because their process died."""
        return [test for test in self.collected if test in self.failures or test not in self.ended]

    def passed(self, test: str) -> bool:
        """Return whether a test ran to its end and passed."""
        return test in self.ended and test not in self.failures and test not in self.skips

    def failure(self, test: str) -> str:
        """Return the text of a test's failure."""
        return self.failures.get(test, "No result: the run ended before this test did.")


class SuiteRun:
    """Up to two runs of pytest and the verdict on both."""

    def __init__(self, arguments: Sequence[str], build: Path, stall_s: float = STALL_S) -> None:
        self._arguments = arguments
        self._build = build
        self._stall_s = stall_s

    def run(self) -> int:
        """Run the suite. Return the exit code of the build."""
        self._build.mkdir(exist_ok=True)
        flaky = self._build / "flaky.txt"
        flaky.unlink(missing_ok=True)
        code, first = self._pytest("first")
        _tell_skips(first)
        suspects = first.suspects()
        if not code and not suspects:
            return 0
        if code == INTERRUPTED or first.uncollected or not suspects or len(suspects) > SECOND_CHANCES_MAX:
            return code or 1
        again = self._second_chance(suspects)
        for test in suspects:
            if again.passed(test):
                text = f"FLAKY {test}: failed beside other tests, passed alone. The failure:\n{first.failure(test)}\n"
                with flaky.open("a") as file:
                    file.write(text)
                sys.stdout.write(text)
        failed = [test for test in suspects if not again.passed(test)]
        for test in failed:
            _say(f"FAILED TWICE {test}")
        return 1 if failed else 0

    def _second_chance(self, tests: list[str]) -> Results:
        _say(f"Second chance for {len(tests)} tests, alone:", *tests)
        _end_processes()
        only = self._build / "second-chance.json"
        only.write_text(json.dumps(tests))
        return self._pytest("second", "--numprocesses", "0", f"--only={only}")[1]

    def _pytest(self, name: str, *more: str) -> tuple[int, Results]:
        """Run pytest until it ends or stalls. Return its exit code and results."""
        path = self._build / f"results-{name}.jsonl"
        path.write_text("")
        hangs = path.with_name(f"{path.name}.hangs")
        hangs.write_text("")
        # -P: without it the working directory is importable, and with it our folders under their flat names.
        command = [sys.executable, "-P", "-m", "pytest", *self._arguments, *more, f"--results={path}"]
        with subprocess.Popen(command, env={**os.environ, MARK: str(os.getpid())}) as process:
            code = self._wait(process, path)
        if stacks := hangs.read_text():
            _say("A test did not end after its timeout, and its process was ended. Its stacks:", stacks)
        with path.open() as lines:
            return code, Results.read(lines)

    def _wait(self, process: "subprocess.Popen[bytes]", path: Path) -> int:
        while True:
            try:
                return process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                if time.time() - path.stat().st_mtime > self._stall_s:
                    _say(f"No test ended for {self._stall_s:.0f} s: the run is ended.")
                    _end_processes()
                    return process.wait() or 1


def _tell_skips(results: Results) -> None:
    by_reason = Counter(results.skips.values())
    _say(f"{len(results.skips)} tests of {len(results.collected)} skipped.")
    for reason, count in by_reason.most_common():
        _say(f"  {count} of them: {reason}")


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def _end_processes() -> None:
    """Kill the processes of this run that have not ended."""
    ours = [process for process in psutil.process_iter() if _is_ours(process)]
    for process in ours:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(ours, timeout=10)


def _is_ours(process: psutil.Process) -> bool:
    try:
        return bool(process.environ().get(MARK) == str(os.getpid()))
    except (psutil.Error, OSError):
        return False


def main() -> int:
    """Run the suite with the arguments of the command line."""
    # pytest receives Ctrl-C too, and ends with a summary.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return SuiteRun(sys.argv[1:], Path("build")).run()
    finally:
        _end_processes()


if __name__ == "__main__":
    sys.exit(main())
