"""Which state of the source a run tried, so that its seed can be tried on the same again."""

import subprocess
from pathlib import Path

from cordwood import __version__

GIT_S = 10
HERE = Path(__file__).resolve().parent
SOURCE = (":(top)", ":(top,exclude)docs")
"""All but the documentation, where results are written while runs go on."""


class Unclean(Exception):
    """The source is at no commit: what runs on it could not be run again."""


def commit() -> str:
    """The commit of the source tree, with -dirty where it has changes; for an installed package its version."""
    try:
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return __version__


def clean_commit() -> str:
    """The commit of the source tree. Raises Unclean where anything but the documentation differs from it."""
    try:
        changed = _git("status", "--porcelain", "--", *SOURCE).splitlines()
        if not changed:
            return _git("rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.SubprocessError) as error:
        raise Unclean(f"a recorded run needs the source as a git tree: {error}") from None
    raise Unclean(f"a recorded run needs a commit, and {changed[0].split()[-1]} is changed: commit it first")


def _git(*arguments: str) -> str:
    said = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, timeout=GIT_S, check=True)
    return said.stdout.strip()
