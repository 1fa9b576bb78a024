"""Bit flips in a stopped broker's files: each is named by `log verify`, and never served."""

import random
from pathlib import Path

import pytest

from cordwood.chaos.live import flip
from cordwood.chaos.live.faults.damage import Flip


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_flipped_bits_of_a_brokers_files_are_named_and_never_served(tmp_path: Path, is_killed: bool) -> None:
    pristine, rng = tmp_path / "pristine", random.Random(1)
    served = flip.prepare(pristine, is_killed=is_killed)
    assert len(served) == flip.RECORDS * len(flip.partitions())
    in_a_log = next(path for path in sorted(pristine.rglob("*.log")) if path.stat().st_size > flip.RECORD_BYTES)
    flips = [Flip(in_a_log.relative_to(pristine), 9000, 3), flip.choose(pristine, rng), flip.choose(pristine, rng)]
    assert [anomaly for one in flips for anomaly in flip.examine(pristine, tmp_path / "data", one, served)] == []
