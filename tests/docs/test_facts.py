"""Facts in documentation pages match the code: file paths, defaults, metrics, levels, the folders of the map."""

import re
from pathlib import Path

import pytest

from cordwood import __version__
from cordwood.cluster.config.settings import SETTINGS
from cordwood.cluster.metadata.features import SUPPORTED

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEPLOYED = [ROOT / "deploy/prometheus/alerts.yml", ROOT / "deploy/grafana/cordwood.json"]
FOLDERS = (
    "archive",
    "bench",
    "chaos",
    "client",
    "columnar",
    "cluster",
    "docs",
    "examples",
    "replication",
    "spark",
    "src",
    "storage",
    "tests",
)
PATH = re.compile(r"`(\w[\w/.-]*\.py)`")
DEFAULT = re.compile(r"`([a-z][a-z0-9.]+\.[a-z]+)` \((\d+) (ms|s|min|KiB|MiB|GiB)\)")
METRIC = re.compile(r"\bcordwood_[a-z0-9_]*[a-z0-9]\b")
UNITS = {"ms": 1, "s": 1000, "min": 60_000, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Return the paths of all files that a page may name, with a leading slash."""
    return [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path, files: list[str]) -> None:
    named = set(PATH.findall(page.read_text()))
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in files)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_default_that_a_page_states_is_that_of_the_code(page: Path) -> None:
    for key, number, unit in DEFAULT.findall(page.read_text()):
        if key in SETTINGS:
            assert SETTINGS[key].default == int(number) * UNITS[unit], key


def test_a_default_is_recognised() -> None:
    assert DEFAULT.findall("`broker.session.timeout.ms` (2 s)") == [("broker.session.timeout.ms", "2", "s")]


@pytest.mark.parametrize("page", [*PAGES, *DEPLOYED], ids=lambda page: page.name)
def test_every_metric_that_a_page_names_is_in_the_list_of_metrics(page: Path) -> None:
    listed = set(METRIC.findall((ROOT / "docs" / "metrics.md").read_text()))
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in METRIC.findall(page.read_text())}
    # A name that is cut off, such as cordwood_share_*, stands for a family.
    assert [name for name in sorted(named) if not any(each.startswith(name) for each in listed)] == []


def test_the_levels_of_this_release_are_those_of_the_code() -> None:
    release = ".".join(__version__.split(".")[:2])
    rows = re.findall(r"^\| ([\d.]+) \| ([\d-]+) \|", (ROOT / "docs/operations/upgrade.md").read_text(), re.MULTILINE)
    assert rows[-1] == (release, str(SUPPORTED))


def test_the_page_of_the_console_has_every_view() -> None:
    script = (ROOT / "cluster/http/console/static/main.js").read_text()
    views = re.findall(r"^  (\w+): \{ all: ", script, re.MULTILINE)
    headings = re.findall(r"^## (\w+)", (ROOT / "docs/console.md").read_text(), re.MULTILINE)
    assert len(views) > 8
    assert set(views) - {heading.lower() for heading in headings} == set()


def test_the_map_has_every_folder() -> None:
    rows = re.findall(r"^\| `([\w/]+)/?` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    mapped = {row.split("/")[0] for row in rows}
    assert mapped >= set(FOLDERS) - {"src"}
