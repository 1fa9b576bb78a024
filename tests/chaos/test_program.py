"""Programs that are modules: a failure is one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.bench.generator import LoadFailed
from cordwood.chaos.program import run_program
from cordwood.cluster.cli.exits import ExitCode


@pytest.mark.parametrize(
    "module",
    [
        *("cordwood.bench", "cordwood.bench.archive", "cordwood.bench.archive.spark", "cordwood.bench.compaction.load"),
        *("cordwood.bench.growth", "cordwood.bench.hosts", "cordwood.bench.quotas"),
        *("cordwood.chaos.live.archive_kills", "cordwood.chaos.live.replacements", "cordwood.chaos.mutants"),
    ],
)
def test_a_record_that_cannot_be_made_is_a_sentence(tmp_path: Path, module: str) -> None:
    recorded = tmp_path / "record.jsonl"
    recorded.write_text("of something else\n")
    commands = ["keys"] if module.endswith(".load") else []
    done = subprocess.run(
        [sys.executable, "-m", module, *commands, "--record", str(recorded)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in {1, 2}
    assert "Traceback" not in done.stderr
    # Or a source tree with changes is reported first.
    assert recorded.name in done.stderr or "commit" in done.stderr, done.stderr


def test_a_load_that_failed_is_one_line_of_its_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bench.hosts had a traceback."""

    def measure() -> None:
        raise LoadFailed("1 producer: 3 records were not acknowledged.")

    monkeypatch.setattr(sys, "argv", ["measure"])
    with pytest.raises(SystemExit) as ended:
        run_program(measure)
    assert ended.value.code == ExitCode.FAILED
    assert capsys.readouterr().err == "1 producer: 3 records were not acknowledged.\n"
