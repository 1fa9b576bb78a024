"""Machine settings during a benchmark: free memory is kept, and every setting is restored at the end."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cordwood.bench.limits import DISK_READ, DISK_WRITE, FLUSH_P50, FLUSH_P99, FLUSHES, LOOPBACK, MachineLimits, place
from cordwood.bench.machine import forget_files, memory_kept


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    path = tmp_path / "page_reporting_order"
    path.write_text("9\n")
    return path


def test_no_page_is_given_back_meanwhile(setting: Path) -> None:
    with memory_kept(setting) as is_kept:
        assert is_kept
        assert int(setting.read_text()) >= 11
    assert setting.read_text().strip() == "9"


def test_a_benchmark_that_fails_leaves_the_machine_as_it_was(setting: Path) -> None:
    with pytest.raises(RuntimeError), memory_kept(setting):
        raise RuntimeError
    assert setting.read_text().strip() == "9"


def test_a_benchmark_that_is_ended_leaves_the_machine_as_it_was(setting: Path) -> None:
    program = textwrap.dedent("""
        import signal, sys
        from pathlib import Path
        from cordwood.bench.machine import memory_kept
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with memory_kept(Path(sys.argv[1])):
            print("inside", flush=True)
            signal.pause()
    """)
    with subprocess.Popen([sys.executable, "-c", program, str(setting)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        assert int(setting.read_text()) >= 11
        process.terminate()
        assert process.wait(30) == 143
    assert setting.read_text().strip() == "9"


def test_what_is_held_off_already_is_left_alone(setting: Path) -> None:
    setting.write_text("12\n")
    with memory_kept(setting) as is_kept:
        assert is_kept
        assert setting.read_text() == "12\n"
    assert setting.read_text() == "12\n"


def test_a_kernel_without_the_setting_is_left_alone(tmp_path: Path) -> None:
    with memory_kept(tmp_path / "none") as is_kept:
        assert not is_kept
    assert not list(tmp_path.iterdir())


def test_files_are_forgotten_and_whole(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "0.log").write_bytes(b"record" * 1000)
    assert forget_files(tmp_path) == hasattr(os, "posix_fadvise")
    assert (tmp_path / "deep" / "0.log").read_bytes() == b"record" * 1000


def test_limits_are_measured_again_in_every_round_and_leave_no_file(tmp_path: Path) -> None:
    limits = MachineLimits()
    for _ in range(2):
        limits.measure(tmp_path, 0.02)
    assert set(limits.values) - {DISK_READ} == {DISK_WRITE, FLUSHES, FLUSH_P50, FLUSH_P99, LOOPBACK}
    assert all(len(values) == 2 and min(values) > 0 for values in limits.values.values())
    assert limits.median("nothing that was measured") is None
    assert not list(tmp_path.iterdir())


def test_the_disk_is_named_with_where_it_is_mounted() -> None:
    assert place(Path("/proc/self")).endswith("(proc), mounted at /proc")
