"""Start positions for reading, in every form that a user may write."""

import pytest

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.offsets import parse_position
from cordwood.cluster.operations.positions import AtOffset, AtTime, Edge, Position

NOON_MS = 1785412800000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        ("0", AtOffset(0)),
        ("20260730", AtOffset(20260730)),
        ("2026-07-30T12:00:00Z", AtTime(NOON_MS)),
        ("2026-07-30T14:00:00+02:00", AtTime(NOON_MS)),
        ("2026-07-30 12:00:00.250", AtTime(NOON_MS + 250)),
        ("2026-07-30", AtTime(NOON_MS - 12 * 3600 * 1000)),
        (f"@{NOON_MS}", AtTime(NOON_MS)),
    ],
)
def test_positions_are_read_as_written(text: str, position: Position) -> None:
    assert parse_position(text, "--from") == position


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "@", "@now", "1.5", "2026-13-01", "1960-01-01", str(1 << 64)])
def test_what_is_no_position_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(Failure) as refused:
        parse_position(text, "--from")
    assert refused.value.exit_code is ExitCode.USAGE
    assert "--from" in refused.value.sentence
