"""The console in a real browser: an operator's actions as methods, with script errors and foreign requests recorded."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOWN_MS = 15_000
"""Milliseconds until an expected element is on the page."""
PARTITION_KINDS = ("leader", "follower", "behind", "out", "down")

expect.set_options(timeout=SHOWN_MS)


@contextmanager
def headless() -> Iterator[Browser]:
    """Yield a browser that reaches this machine only."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Console:
    """A page of one broker's console."""

    def __init__(self, browser: Browser, address: str, width: int = 1280, scheme: str = "light") -> None:
        """Take the broker's `address` as HOST:PORT."""
        self.address = address
        self.mistakes: list[str] = []
        """Script errors, and what the browser blocked."""
        self.asked: list[str] = []
        """Every URL that the page requested."""
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, place: str = "") -> "Console":
        """Open a page of the console; `place` is the part after the #."""
        self.page.goto(f"http://{self.address}/#/{place}")
        expect(self.heading).to_be_visible()
        return self

    def open_login(self) -> "Console":
        """Open the login page of a closed broker."""
        self.page.goto(f"http://{self.address}/")
        expect(self.heading).to_have_text("Log in")
        return self

    @property
    def heading(self) -> Locator:
        return self.page.locator("main h1")

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog")

    @property
    def table_rows(self) -> Locator:
        return self.page.locator("main tbody tr")

    def press(self, name: str, within: Locator | None = None) -> None:
        """Click the button with this name."""
        (within or self.page.locator("main")).get_by_role("button", name=name, exact=True).click()

    def fill(self, label: str, text: str, within: Locator | None = None) -> None:
        """Fill in a text field; `label` may be a part of the field's label."""
        fields = (within or self.page.locator("main")).locator("label").filter(has_text=label)
        fields.locator("input").fill(text)

    def choose(self, label: str, option: str, within: Locator | None = None) -> None:
        (within or self.page.locator("main")).get_by_role("combobox", name=label, exact=True).select_option(option)

    def reported(self, sentence: str) -> None:
        """Expect the notice of a finished action."""
        expect(self.page.locator("#notice")).to_contain_text(sentence)

    def cells(self, topic: str, kind: str) -> Locator:
        """Return the cells of one kind in the drawing of a topic's partitions."""
        assert kind in PARTITION_KINDS
        return self.page.locator(f'[data-key="block {topic}"] [data-kind="{kind}"]')

    def in_order(self) -> None:
        """Check that no script failed and that the page sent requests only to the broker."""
        assert self.mistakes == []
        elsewhere = [url for url in self.asked if urlsplit(url).netloc != self.address]
        assert elsewhere == []
        assert len(self.asked) > 5, "the page has asked for something at all"

    def close(self) -> None:
        self.page.context.close()

    def _note(self, kind: str, text: str) -> None:
        # A browser logs error responses and unreachable brokers, which some tests provoke.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.mistakes.append(text)
