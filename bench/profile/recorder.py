"""py-spy on running brokers: one recorder for each process, and its samples as folded stacks."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_S = 20.0
END_S = 60.0
"""With native frames py-spy looks up symbols before it begins and before it ends."""


class ProfilerUnavailable(Exception):
    """py-spy is missing or has no permission; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """`rate` samples a second; with `is_native` also the frames of C, so that system calls can be seen."""

    program: str
    rate: int
    is_native: bool

    @contextlib.contextmanager
    def recording(self, pids: Sequence[int], outputs: Sequence[Path]) -> Iterator[None]:
        """Sample each process within the block; its output then has its folded stacks. Raises ProfilerUnavailable."""
        spies: list[subprocess.Popen[str]] = []
        try:
            for pid, output in zip(pids, outputs, strict=True):
                spies.append(self._begin(pid, output))
            for spy in spies:
                _wait_until_it_samples(spy)
            yield
            for spy in spies:
                spy.send_signal(signal.SIGINT)
            for spy, output in zip(spies, outputs, strict=True):
                said = _finish(spy)
                if not output.exists():
                    raise ProfilerUnavailable(f"py-spy has written nothing: {said[-500:]}")
        finally:
            for spy in spies:
                spy.kill()
                spy.communicate()

    def _begin(self, pid: int, output: Path) -> "subprocess.Popen[str]":
        command = [self.program, "record", "--pid", str(pid), "--format", "raw", "--output", str(output)]
        command += ["--rate", str(self.rate), "--idle", *(["--native"] if self.is_native else [])]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)  # fmt: skip


def recorder(rate: int, *, is_native: bool) -> Recorder:
    """Return the py-spy of this interpreter's environment, otherwise the one on the path. Raises
    ProfilerUnavailable."""
    beside = Path(sys.executable).parent / "py-spy"
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise ProfilerUnavailable("There is no py-spy here. Install it with: pip install 'cordwood[bench]'")
    return Recorder(program, rate, is_native)


def _wait_until_it_samples(spy: "subprocess.Popen[str]") -> None:
    """Wait until py-spy prints “Sampling process”, after its preparation. Raises ProfilerUnavailable."""
    said = ""
    until = time.monotonic() + START_S
    assert spy.stdout is not None, "its output is a pipe"
    while time.monotonic() < until:
        line = spy.stdout.readline()
        said += line
        if "Sampling process" in line:
            return
        if not line:
            break
    hint = " Root may look, or anybody where /proc/sys/kernel/yama/ptrace_scope is 0." if "ermission" in said else ""
    raise ProfilerUnavailable(f"py-spy does not begin: {said.strip()[-500:]}{hint}")


def _finish(spy: "subprocess.Popen[str]") -> str:
    try:
        said, _ = spy.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        spy.kill()
        said, _ = spy.communicate()
    return said
