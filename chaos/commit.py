"""The git commit of the source tree under test, so that a seed can be replayed on the same source."""

import subprocess
from pathlib import Path

from cordwood import __version__

GIT_S = 10
HERE = Path(__file__).resolve().parent
SOURCE = (":(top)", ":(top,exclude)docs")
"""All files except the documentation, into which result files are written during runs."""


class Unclean(Exception):
    """The source tree differs from every commit, so that the run could not be repeated."""


def commit() -> str:
    """Return the commit of the source tree, with -dirty if it has changes, or the version of an installed package."""
    try:
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return __version__


def clean_commit() -> str:
    """Return the commit of the source tree. Raises Unclean without a git tree, or if a file outside docs/ differs."""
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
