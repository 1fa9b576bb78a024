"""`cordwood audit verify`: verdicts and exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.cluster.cli.app import app
from cordwood.cluster.cli.exits import ExitCode
from cordwood.cluster.security.audit.files import AuditFiles
from cordwood.storage.real_disk import RealDisk


@pytest.fixture
def audit_log(tmp_path: Path) -> Path:
    """Return the directory of a log of three lines."""
    files = AuditFiles(RealDisk(), str(tmp_path), 1 << 20, 10)
    files.append([{"action": action} for action in ("CREATE_TOPICS", "CREATE_ACLS", "DELETE_TOPICS")])
    files.close()
    return tmp_path


def test_a_sound_log_is_found_sound(audit_log: Path) -> None:
    outcome = CliRunner().invoke(app, ["audit", "verify", str(audit_log)])
    assert (outcome.exit_code, outcome.stderr) == (ExitCode.OK, "")
    assert "all lines to number 3 are as they were written" in outcome.stdout


def test_the_first_changed_line_is_named(audit_log: Path) -> None:
    (file,) = audit_log.iterdir()
    file.write_bytes(file.read_bytes().replace(b"CREATE_ACLS", b"DELETE_ACLS"))
    outcome = CliRunner().invoke(app, ["audit", "verify", str(audit_log)])
    assert outcome.exit_code == ExitCode.FAILED
    assert f"{file}: line 2 is the first that was changed" in outcome.stderr


def test_lines_cut_off_at_the_end_are_noticed_by_a_noted_hash(audit_log: Path) -> None:
    (file,) = audit_log.iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    head = json.loads(lines[-1])["hash"]
    assert CliRunner().invoke(app, ["audit", "verify", str(audit_log), "--head", head]).exit_code == ExitCode.OK
    file.write_bytes(b"".join(lines[:-1]))
    assert CliRunner().invoke(app, ["audit", "verify", str(audit_log)]).exit_code == ExitCode.OK
    outcome = CliRunner().invoke(app, ["audit", "verify", str(audit_log), "--head", head, "--json"])
    assert outcome.exit_code == ExitCode.FAILED
    assert json.loads(outcome.stdout)["head_found"] is False


def test_a_directory_without_an_audit_log_is_a_mistake(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["audit", "verify", str(tmp_path)])
    assert outcome.exit_code == ExitCode.USAGE
    outcome = CliRunner().invoke(app, ["audit", "verify", str(tmp_path / "missing")])
    assert outcome.exit_code == ExitCode.USAGE
