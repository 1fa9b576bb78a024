"""Takes the pictures of the console: `python docs/generate/console_pictures.py`, with chromium and a few minutes.

Three brokers of this machine under a little load: all well in the light picture, one of them killed in the dark one.
"""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, ViewportSize, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "images"
SIZE = ViewportSize(width=1280, height=820)
CORDWOOD = (sys.executable, "-m", "cordwood.cluster.cli")
PORT, HTTP_PORT = 29_092, 29_192
TOPICS = {"orders": (12, 3), "payments": (6, 3), "clicks": (24, 3), "inventory.changes": (8, 3)}
ITEMS = ("lamp", "chair", "desk")
LOADED_S, KILLED_S = 75.0, 4.0
TURN_S = 0.1


@contextmanager
def cluster() -> Iterator[list[dict[str, Any]]]:
    """Return the `cluster.json` of three running brokers."""
    with tempfile.TemporaryDirectory() as place:
        ports = ("--port", str(PORT), "--http-port", str(HTTP_PORT))
        subprocess.run([*CORDWOOD, "up", "--detach", "--data-dir", place, "--brokers", "3", *ports], check=True)
        try:
            yield json.loads((Path(place) / "cluster.json").read_text())["brokers"]
        finally:
            subprocess.run([*CORDWOOD, "down", "--data-dir", place], check=True)


class CustomerLoad:
    """Customers, by day and by night."""

    def __init__(self, bootstrap: str) -> None:
        self._rng = random.Random(8)
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
        wanted = [NewTopic(name, partitions, copies) for name, (partitions, copies) in TOPICS.items()]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics(wanted).values():
            created.result()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for _ in range(int(60 + 35 * math.sin(now / 6) + self._rng.randrange(15))):
                order = {"item": self._rng.choice(ITEMS), "price_cents": self._rng.randrange(10_000)}
                key = f"customer-{self._rng.randrange(500)}"
                self._producer.produce(self._rng.choice(list(TOPICS)), json.dumps(order), key)
            self._producer.poll(TURN_S)


def take(browser: Browser, address: str, scheme: str, load: CustomerLoad, broker_to_kill: int | None) -> None:
    """One picture, once the page has been open for a while."""
    page = browser.new_context(viewport=SIZE, color_scheme="dark" if scheme == "dark" else "light").new_page()
    page.goto(f"http://{address}/")
    load.run(LOADED_S)
    if broker_to_kill is not None:
        os.kill(broker_to_kill, signal.SIGKILL)
        load.run(KILLED_S)
    page.screenshot(path=IMAGES / f"console-{scheme}.png")
    page.context.close()


def main() -> None:
    """Write both."""
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with cluster() as brokers, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        load = CustomerLoad(",".join(broker["kafka"] for broker in brokers))
        take(browser, brokers[0]["http"], "light", load, None)
        take(browser, brokers[0]["http"], "dark", load, brokers[2]["pid"])
        browser.close()


if __name__ == "__main__":
    main()
