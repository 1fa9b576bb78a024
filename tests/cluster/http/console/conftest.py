"""A browser for the tests of the console, and a page of one broker's."""

from collections.abc import Iterator

import pytest
from broker_fixture import RunningBroker
from console_fixture import CHROMIUM, Console, headless
from playwright.sync_api import Browser
from requirements import Requirement, check


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a file at a time: while it runs, no test can have an event loop of its own."""
    check(Requirement.CHROMIUM, CHROMIUM is not None, "chromium is not installed")
    with headless() as running:
        yield running


@pytest.fixture
def console(browser: Browser, served: RunningBroker) -> Iterator[Console]:
    """Of a broker of one node. In the end nothing has gone wrong on the page."""
    opened = Console(browser, served.settings["http.listen"])
    yield opened
    opened.in_order()
    opened.close()
