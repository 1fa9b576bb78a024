"""Result files: the rows of one run at one commit, and detection of changed lines."""

import json
from pathlib import Path

import pytest

from cordwood.chaos import recorded
from cordwood.chaos.commit import Unclean
from cordwood.chaos.results import CannotRecord, InvalidResultFile, ResultFile, read
from cordwood.cluster.cli.exits import ExitCode

KIND, ABOUT = "chaos-sim", {"seeds": "1..2"}
ROWS = [{"kinds": {}, "seeds": 2, "faults": {"kill": 7}}, {"kinds": {"lost-write": 1}, "seeds": 2}]


@pytest.fixture(autouse=True)
def at_commit(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Set the source's commit to the last item of the returned list."""
    commits = ["abc"]
    monkeypatch.setattr("cordwood.chaos.results.clean_commit", lambda: commits[-1])
    return commits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a result with two rows, in a directory that did not exist."""
    path = tmp_path / "results" / "result.jsonl"
    record = ResultFile(path, KIND, ABOUT)
    for row in ROWS:
        record.add(row)
    record.end()
    return path


def test_what_was_written_is_read_back(path: Path) -> None:
    result = read(path)
    assert (result.kind, result.commit, result.about, result.rows) == (KIND, "abc", ABOUT, ROWS)
    assert result.is_whole


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_a_line_that_is_changed_left_out_or_doubled_is_noticed(path: Path, line: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    changed = json.loads(lines[line]) | {"kinds": {}, "commit": "abd", "end": 3}
    for other in ([json.dumps(changed) + "\n"], [lines[line]] * 2, [] if line < 3 else ["{}\n"], ["nonsense\n"]):
        path.write_text("".join([*lines[:line], *other, *lines[line + 1 :]]))
        with pytest.raises(InvalidResultFile):
            read(path)


def test_a_run_that_was_broken_off_goes_on_at_its_commit_only(path: Path, at_commit: list[str]) -> None:
    whole = path.read_text()
    path.write_text(whole[: whole.index('{"end"')] + '{"kinds": {"lo')
    assert not read(path).is_whole
    at_commit.append("abd")
    with pytest.raises(CannotRecord, match="is of commit abc, and this is abd"):
        ResultFile(path, KIND, ABOUT)
    at_commit.append("abc")
    with pytest.raises(CannotRecord, match="another run"):
        ResultFile(path, KIND, {"seeds": "1..3"})
    record = ResultFile(path, KIND, ABOUT)
    assert record.rows == ROWS
    record.end()
    assert path.read_text() == whole


def test_a_run_whose_source_changes_is_not_whole(path: Path, at_commit: list[str]) -> None:
    record = ResultFile(path.with_name("other.jsonl"), KIND, ABOUT)
    at_commit.append("abd")
    with pytest.raises(CannotRecord, match="began at commit abc, and ends at abd") as refused:
        record.end()
    assert refused.value.exit_code == ExitCode.FAILED, "something was done"


def test_a_source_with_changes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unclean() -> str:
        raise Unclean("storage/log.py is changed")

    monkeypatch.setattr("cordwood.chaos.results.clean_commit", unclean)
    with pytest.raises(CannotRecord, match=r"storage/log\.py is changed") as refused:
        ResultFile(tmp_path / "result.jsonl", KIND, ABOUT)
    assert refused.value.exit_code == ExitCode.USAGE
    assert not (tmp_path / "result.jsonl").exists()


@pytest.mark.usefixtures("at_commit")
def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, reason in ((tmp_path, "Is a directory"), (tmp_path / "file" / "result.jsonl", "File exists")):
        with pytest.raises(CannotRecord, match=f"cannot be written: {reason}"):
            ResultFile(place, KIND, ABOUT)


def test_the_page_has_a_section_for_each_run_with_its_commit(path: Path) -> None:
    text = recorded.page([("result.jsonl", read(path))])
    assert "## `cordwood chaos sim`: seeds 1..2" in text
    assert "commit abc" in text
    assert "No anomaly." in text
    assert "Found: lost-write 1." in text
    assert "| faults: kill | 7 |" in text
    assert "No run is recorded" in recorded.page([])
