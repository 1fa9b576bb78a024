"""The console of a closed broker: login, logout, and pages without the rights to them."""

from collections.abc import Iterator

import pytest
from closed_http_broker import CLUSTER, ClosedBroker
from console_fixture import Console
from playwright.sync_api import Browser, expect

REFUSED = "The user name or the password is not correct."


@pytest.fixture
def page(browser: Browser, closed: ClosedBroker) -> Iterator[Console]:
    """Yield a browser without a login. At the end, fail if a page had errors."""
    closed.allow("alice", "DESCRIBE", "CLUSTER", CLUSTER)
    closed.allow("alice", "ALL", "TOPIC", "*")
    console = Console(browser, closed.address)
    yield console
    console.in_order()
    console.close()
    closed.take_back("alice")


def try_to_log_in(console: Console, password: str) -> None:
    console.page.get_by_label("User").fill("alice")
    console.page.get_by_label("Password").fill(password)
    console.press("Log in")


def log_in(console: Console) -> None:
    """Log in, and wait for the console."""
    try_to_log_in(console, "secret")
    expect(console.page.locator("#user")).to_contain_text("alice")


def at_login(console: Console) -> None:
    expect(console.heading).to_have_text("Log in")


def test_a_login_opens_the_view_that_was_asked_for(page: Console) -> None:
    page.page.goto(f"http://{page.address}/#/topics")
    at_login(page)
    expect(page.page.get_by_label("User")).to_be_focused()
    log_in(page)
    expect(page.heading).to_have_text("Topics")
    expect(page.page.locator("#user")).to_contain_text("alice")


def test_a_wrong_password_is_said(page: Console) -> None:
    page.open_login()
    try_to_log_in(page, "wrong")
    expect(page.page.locator("#error")).to_have_text(REFUSED)
    expect(page.page.get_by_label("Password")).to_have_value("")
    expect(page.page.get_by_label("Password")).to_be_focused()
    log_in(page)


def test_the_console_changes_things_in_a_session(page: Console) -> None:
    page.open_login()
    log_in(page)
    page.open("topics")
    page.press("Create a topic")
    page.fill("Name", "made-by-alice", page.dialog)
    page.press("Create", page.dialog)
    page.reported("Topic made-by-alice was created")


def test_a_logout_closes_the_console(page: Console) -> None:
    page.open_login()
    log_in(page)
    page.press("Log out", page.page.locator("header"))
    at_login(page)
    page.page.go_back()
    at_login(page)


def test_a_session_that_ends_leads_to_the_login_and_back(page: Console, closed: ClosedBroker) -> None:
    page.open_login()
    log_in(page)
    page.open("brokers")
    closed.add_user("alice", "secret")
    at_login(page)
    log_in(page)
    expect(page.heading).to_have_text("Brokers")


def test_a_user_without_rights_gets_a_sentence(page: Console, closed: ClosedBroker) -> None:
    closed.take_back("alice")
    page.open_login()
    log_in(page)
    expect(page.page.locator("main")).to_contain_text("User:alice has no right to DESCRIBE on the cluster.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_the_login_page_fits_its_window(browser: Browser, closed: ClosedBroker, width: int, scheme: str) -> None:
    console = Console(browser, closed.address, width, scheme).open_login()
    assert console.page.evaluate("document.documentElement.scrollWidth") <= width
    background = console.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0]")
    assert (int(background) < 128) == (scheme == "dark")
    assert console.mistakes == []
    console.close()
