"""The documentation site in a real browser without a network: every page loads completely."""

import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from built_site import built_site
from requirements import Requirement, needs

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPENED_S = 60

pytestmark = needs(Requirement.CHROMIUM, BROWSER is not None, "chromium is not installed")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that does not log requests."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address at which the site is served."""
    site = built_site(tmp_path_factory.mktemp("site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


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
