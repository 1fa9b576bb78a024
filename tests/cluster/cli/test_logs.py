"""`cordwood log` on the data directory of a stopped broker, intact and damaged."""

import json
import random
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from command import cordwood
from typer.testing import CliRunner

from cordwood.cluster.cli.app import app
from cordwood.cluster.cli.exits import ExitCode

FLIPS_PER_FILE = 6


@pytest.fixture(scope="module")
def data(shared: RunningBroker) -> Path:
    """Return the data directory of a stopped broker with two topics."""
    for topic in ("a", "b"):
        cordwood("topic", "create", topic, "-p", "2", bootstrap=shared.bootstrap)
        cordwood("produce", topic, stdin=b"".join(b"line %d\n" % n for n in range(3000)), bootstrap=shared.bootstrap)
    shared.stop()
    return shared.data


def test_a_sound_directory_is_found_sound(data: Path) -> None:
    outcome = CliRunner().invoke(app, ["log", "verify", str(data)])
    assert (outcome.exit_code, outcome.stderr) == (ExitCode.OK, "")
    assert "no damage found" in outcome.stdout
    reported = json.loads(CliRunner().invoke(app, ["log", "verify", str(data), "--json"]).stdout)
    assert reported["ok"]
    assert reported["findings"] == []


def test_dump_shows_every_record_once(data: Path) -> None:
    outcome = CliRunner().invoke(app, ["log", "dump", str(data), "--json"])
    assert outcome.exit_code == ExitCode.OK
    batches = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert sum(batch["records"] for batch in batches) == 6000
    assert all(batch["end_offset"] - batch["base_offset"] == batch["records"] for batch in batches)
    assert "offsets 0 to " in CliRunner().invoke(app, ["log", "dump", str(data)]).stdout


def test_any_flipped_byte_is_found_with_its_file(data: Path) -> None:
    rng = random.Random(3)
    missed = []
    for path in sorted(path for path in data.rglob("*") if path.is_file() and path.stat().st_size):
        sound = path.read_bytes()
        for position in rng.sample(range(len(sound)), min(FLIPS_PER_FILE, len(sound))):
            path.write_bytes(sound[:position] + bytes([sound[position] ^ 0x40]) + sound[position + 1 :])
            outcome = CliRunner().invoke(app, ["log", "verify", str(data)])
            if outcome.exit_code != ExitCode.FAILED or path.name not in outcome.stdout:
                missed.append((path.relative_to(data).as_posix(), position, outcome.exit_code, outcome.stdout[:200]))
        path.write_bytes(sound)
    assert missed == []
