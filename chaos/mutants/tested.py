"""Child process of a hunt: runs pytest until the first test that fails.

The process may run a mutant's code. The outcome is one line of JSON, the last of the output.
"""

import json
import sys
from dataclasses import asdict, dataclass

import pytest

import cordwood

TEST_S = 60
"""Seconds that a test may take, against hangs; no test of a killer takes more than a few."""
WHAT_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Tested:
    """The outcome. `failed` is the id of the test that failed; `package` is the path of the imported package."""

    package: str
    failed: str = ""
    what: str = ""

    @property
    def is_caught(self) -> bool:
        return bool(self.failed)


class FirstFailure:
    """A pytest plugin that keeps the first failure, with paths relative to the root of the source tree."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.failed = self.what = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash else str(report.longrepr)
            self.failed, self.what = report.nodeid, _sentence(message.replace(f"{self._root}/", ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            sys.stderr.write(f"{report.nodeid} cannot be collected: {str(report.longrepr)[-WHAT_CHARS_MAX:]}\n")


def _sentence(message: str) -> str:
    return " ".join(message.split())[:WHAT_CHARS_MAX]


def main() -> int:
    """Run the test files of the arguments, of which the first is the root of the source tree."""
    root, *files = sys.argv[1:]
    first = FirstFailure(root)
    settings = ["-c", f"{root}/pyproject.toml", "--rootdir", root, "-p", "no:cacheprovider", "-p", "no:xdist"]
    behaviour = ["-x", "-q", "--no-header", "--tb=short", f"--timeout={TEST_S}"]
    code = pytest.main([*settings, *behaviour, *files], plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(code)
    sys.stdout.write("\n" + json.dumps(asdict(Tested(cordwood.__path__[0], first.failed, first.what))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
