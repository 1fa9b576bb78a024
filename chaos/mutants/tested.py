"""In a process of its own, which may be a mutant's: pytest until the first test that fails.

The outcome is one line of JSON, the last of the output.
"""

import json
import sys
from dataclasses import asdict, dataclass

import pytest

import cordwood

TEST_S = 60
"""No test of a killer takes more than a few seconds; a mutant may make it hang."""
WHAT_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Tested:
    """What came of it. `failed` is the id of the test that failed; `package` is where the code came from."""

    package: str
    failed: str = ""
    what: str = ""

    @property
    def is_caught(self) -> bool:
        return bool(self.failed)


class FirstFailure:
    """A plugin of pytest that keeps the first failure."""

    def __init__(self) -> None:
        self.failed = self.what = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed, self.what = report.nodeid, _sentence(crash.message if crash else str(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            sys.stderr.write(f"{report.nodeid} cannot be collected: {str(report.longrepr)[-WHAT_CHARS_MAX:]}\n")


def _sentence(message: str) -> str:
    return " ".join(message.split())[:WHAT_CHARS_MAX]


def main() -> int:
    """Arguments: the root of the source tree, and test files."""
    root, *files = sys.argv[1:]
    first = FirstFailure()
    settings = ["-c", f"{root}/pyproject.toml", "--rootdir", root, "-p", "no:cacheprovider", "-p", "no:xdist"]
    behaviour = ["-x", "-q", "--no-header", "--tb=short", f"--timeout={TEST_S}"]
    code = pytest.main([*settings, *behaviour, *files], plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(code)
    sys.stdout.write("\n" + json.dumps(asdict(Tested(cordwood.__path__[0], first.failed, first.what))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
