"""Fixtures for the console's tests: a browser, and a page of one broker."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker
from console_fixture import CHROMIUM, Console, headless
from playwright.sync_api import Browser
from requirements import Requirement, check


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a browser for one file: while it runs, no test can have an event loop of its own."""
    check(Requirement.CHROMIUM, CHROMIUM is not None, "chromium is not installed")
    with headless() as running:
        yield running


@pytest.fixture
def console(browser: Browser, served: RunningBroker) -> Iterator[Console]:
    """Yield the console of a one-node broker. At the end, fail if the page had errors."""
    opened = Console(browser, served.settings["http.listen"])
    yield opened
    opened.in_order()
    opened.close()
