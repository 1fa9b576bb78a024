"""The documentation, built as `make docs` builds it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT_S = 100


def built_site(place: Path) -> Path:
    """Build the site in `place` and return it. Raises AssertionError on any warning of mkdocs."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=BUILT_S)
    assert built.returncode == 0, built.stderr
    return place
