"""The documentation site: it builds without warnings, is whole in a browser without a network, and has all runbooks."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from requirements import Requirement, needs

ROOT = Path(__file__).resolve().parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BUILT_S, OPENED_S = 100, 60
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
ELSEWHERE = re.compile(r"(https?:)?//")
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
LOADED_BY_ITSELF = {"script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src", "video": "src"}
LINKS_THAT_ARE_FOLLOWED_BY_NOBODY = {"canonical", "prev", "next", "alternate"}


class Page(HTMLParser):
    """One page's loaded resources, its link targets, and its elements' classes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.ids.add(has.get("id", ""))
        self.classes.update(has.get("class", "").split())
        if tag in LOADED_BY_ITSELF:
            self.loaded.append(has.get(LOADED_BY_ITSELF[tag], ""))
        if tag == "link" and has.get("rel") not in LINKS_THAT_ARE_FOLLOWED_BY_NOBODY:
            self.loaded.append(has.get("href", ""))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that does not log requests."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def from_elsewhere(site: Path) -> Iterator[str]:
    """Yield the resources of pages and styles that a browser would load from another host."""
    for page in site.rglob("*.html"):
        yield from (f"{page.name}: {url}" for url in Page(page.read_text()).loaded if ELSEWHERE.match(url))
    for style in site.rglob("*.css"):
        yield from (f"{style.name}: {url}" for url in IN_STYLES.findall(style.read_text()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the documentation, built as `make docs` builds it. A warning of mkdocs is an error."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=BUILT_S, check=False)
    assert built.returncode == 0, built.stderr
    return place


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Yield the address at which the site is served."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_it_has_all_pages_and_each_can_be_reached(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    by_heading = (ROOT / "mkdocs.yml").read_text()
    missing = [name for name in pages if not name.startswith("adr/") and name.replace(".html", ".md") not in by_heading]
    assert missing == []
    assert not (site / "generate").exists()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    assert list(from_elsewhere(site)) == []
    # The classes `mermaid` and `md-source` make the theme load a script for text diagrams and query the repository
    # host.
    classes = set().union(*(Page(page.read_text()).classes for page in site.rglob("*.html")))
    assert "md-content" in classes
    assert not classes & {"mermaid", "md-source"}


def test_a_page_that_loads_something_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<link rel="canonical" href="https://a.example/"><link rel="stylesheet" href="//b.example/x.css">'
        '<script src="https://c.example/x.js"></script><a href="https://d.example/">d</a><img src="near.svg">'
    )
    (tmp_path / "style.css").write_text("@import 'https://e.example/x.css'; b { background: url(near.png) }")
    found = [line.split("//")[1].split("/")[0] for line in from_elsewhere(tmp_path)]
    assert found == ["b.example", "c.example", "e.example"]


def test_every_alert_has_its_runbook(site: Path) -> None:
    urls = re.findall(r"runbook_url: docs/(\S+)\.md#(\S+)", ALERTS.read_text())
    assert len(urls) == ALERTS.read_text().count("- alert:") > 0
    lacking = [
        f"{page}#{anchor}" for page, anchor in urls if anchor not in Page((site / f"{page}.html").read_text()).ids
    ]
    assert lacking == []


@needs(Requirement.CHROMIUM, BROWSER is not None, "chromium is not installed")
@pytest.mark.parametrize("page", ["index.html", "concepts.html", "architecture.html", "reference/kafka.html"])
def test_a_page_misses_nothing(address: str, page: str, tmp_path: Path) -> None:
    assert BROWSER is not None
    opened = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            f"{address}/{page}",
        ],
        capture_output=True,
        text=True,
        timeout=OPENED_S,
        check=True,
    )
    assert "CONSOLE" not in opened.stderr, opened.stderr
    # The theme's script has run up to its inspection of the page's elements.
    assert "js-focus-visible" in opened.stdout
