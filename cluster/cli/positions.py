"""Start position as a command's option: an invalid text is a Failure."""

from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.operations import positions
from cordwood.cluster.operations.positions import Position


def parse(text: str, option: str) -> Position:
    """Parse the position given to `option`. Raises Failure with exit code 2."""
    try:
        return positions.parse(text)
    except positions.NoPosition as mistake:
        raise Failure(f"{option} {text.strip()!r} is {mistake}", ExitCode.USAGE) from None
