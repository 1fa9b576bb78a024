"""Which state of the source a run tried, so that its seed can be tried on the same again."""

import subprocess
from pathlib import Path

from cordwood import __version__

GIT_S = 10


def commit() -> str:
    """The commit of the source tree, with -dirty where it has changes; for an installed package its version."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return said.stdout.strip()
