"""The py-spy recorder: folded stacks of another process, and errors as sentences."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import Requirement, check

from cordwood.bench.profile.recorder import ProfilerUnavailable, Recorder, recorder
from cordwood.bench.profile.stages import stacks_of

SPINNING = """
def spin():
    while True:
        sum(range(1000))

print("begun", flush=True)
spin()
"""
NOBODY = 2**22 + 1
"""A process id above the kernel's limit."""


@pytest.fixture
def spinning() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen([sys.executable, "-c", SPINNING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def test_what_a_process_did_meanwhile_is_in_its_folded_stacks(
    spinning: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    spy, folded = recorder(100, is_native=False), tmp_path / "folded"
    try:
        with spy.recording([spinning.pid], [folded]), pytest.raises(subprocess.TimeoutExpired):
            spinning.wait(1.0)
    except ProfilerUnavailable as reason:
        if "ermission" not in str(reason):
            raise
        check(Requirement.PTRACE, False, str(reason))
    stacks = list(stacks_of(folded.read_text().splitlines()))
    assert sum(count for _, count in stacks) > 10
    assert all(any(frame.startswith("spin (") for frame in frames) for frames, _ in stacks)


def test_a_process_that_is_not_there_is_reported(tmp_path: Path) -> None:
    spy = recorder(100, is_native=False)
    with (
        pytest.raises(ProfilerUnavailable, match="py-spy does not begin"),
        spy.recording([NOBODY], [tmp_path / "folded"]),
    ):
        pytest.fail("it began")


def test_a_spy_that_writes_nothing_is_reported(tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text("#!/bin/sh\necho Sampling process\nexec sleep 60\n")
    liar.chmod(0o755)
    spy = Recorder(str(liar), 100, is_native=False)
    with (
        pytest.raises(ProfilerUnavailable, match="py-spy has written nothing"),
        spy.recording([1], [tmp_path / "folded"]),
    ):
        pass
