"""Static checks of the image and of compose.yaml, without a build."""

import re
from pathlib import Path

from cordwood.cluster.config.sources import load

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_of_the_package_reaches_the_build() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    folders = {link.name for link in (ROOT / "src" / "cordwood").iterdir() if link.is_symlink()}
    assert folders
    assert folders <= let_through


def test_the_settings_of_compose_are_settings() -> None:
    rows = re.findall(r"^ +(CORDWOOD_\w+): (.+)$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    settings = load(environ=dict(rows))
    assert settings.default_replication_factor == len(settings.controller_quorum_voters) == 3
