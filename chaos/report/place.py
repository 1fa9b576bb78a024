"""Where a report goes: known to be writable before the run that it is to tell of."""

import os
from pathlib import Path

from cordwood.cluster.cli.exits import ExitCode, Failure


def writable(path: Path) -> Path:
    """The same place, whatever the current folder becomes. Raises Failure."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Failure(f"--report {path} cannot be written.", ExitCode.USAGE)
    return path.resolve()
