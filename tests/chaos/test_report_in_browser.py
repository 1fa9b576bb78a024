"""The HTML report in a real browser without network: the drawing, and the values at the pointer."""

import re
import shutil
import subprocess
from pathlib import Path

from requirements import Requirement, needs
from run_fixture import ToldRun

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPENED_S = 60

POINT = """
<script>
const box = document.getElementById("timeline").getBoundingClientRect();
document.getElementById("timeline").dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2}));
document.body.dataset.size = `${Math.round(box.width)}x${Math.round(box.height)}`;
</script>
"""

pytestmark = needs(Requirement.CHROMIUM, BROWSER is not None, "chromium is not installed")


def opened(page: str, place: Path) -> str:
    """Return the page as HTML after a browser has run its scripts. Fail where a script failed."""
    file = place / "report.html"
    file.write_text(page, encoding="utf-8")
    assert BROWSER is not None
    browser = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={place / 'profile'}",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=OPENED_S,
        check=True,
    )
    assert "CONSOLE" not in browser.stderr, browser.stderr
    return browser.stdout


def test_a_report_is_drawn_and_answers_the_pointer(tmp_path: Path) -> None:
    run = ToldRun().struck("kill", "broker 2: killed", 20, 30).silent(20, 40).lost(8)
    shown = opened(run.page("lost-write 1").replace("</body>", POINT + "</body>"), tmp_path)
    width, height = map(int, re.findall(r'data-size="(\d+)x(\d+)"', shown)[0])
    assert width > 300
    assert height > 100
    reading = re.findall(r'<p id="reading">([^<]*)</p>', shown)
    assert len(reading) == 1
    # The pointer is in the middle of the drawing, which is within the silence.
    assert "0 records/s" in reading[0]
    assert "p99 none" in reading[0]
    assert "2 partitions unserved" in reading[0]
    assert "lost-write" in shown


def test_a_report_without_anything_is_drawn_too(tmp_path: Path) -> None:
    assert "Point at the timeline" in opened(ToldRun(seconds=1).page(), tmp_path)
