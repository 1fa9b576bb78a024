"""Sources of other projects' tests, from their repositories at a tag."""

import shutil
import subprocess
from pathlib import Path

from requirements import Requirement
from suite import CACHE, Unmet

CLONE_S = 600


def sources(repository: str, tag: str) -> Path:
    """Return the folder with a repository of GitHub at a tag; fetch it if it is not there. Raises Unmet."""
    folder = CACHE / f"{repository.rpartition('/')[2]}-{tag}"
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        address = f"https://github.com/{repository}.git"
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth=1", f"--branch={tag}"]
        done = subprocess.run([*clone, address, part], capture_output=True, text=True, timeout=CLONE_S, check=False)
        if done.returncode != 0:
            raise Unmet(Requirement.NETWORK, f"{address} could not be fetched.\n{done.stderr}")
        part.rename(folder)
    return folder
