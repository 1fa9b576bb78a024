"""The path of a report file, checked before the run starts."""

import os
from pathlib import Path

from cordwood.cluster.cli.exits import ExitCode, Failure


def writable(path: Path) -> Path:
    """Return the absolute path, independent of later changes of the working directory. Raises Failure."""
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Failure(f"--report {path} cannot be written.", ExitCode.USAGE)
    return path.resolve()
