"""The console in a real browser, told in verbs what an operator does, with everything noted that must not happen."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOWN_MS = 15_000
"""Until something is on the page that should be."""
PARTITION_KINDS = ("leader", "follower", "behind", "out", "down")

expect.set_options(timeout=SHOWN_MS)


@contextmanager
def headless() -> Iterator[Browser]:
    """A browser that reaches this machine only."""
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
        """HOST:PORT."""
        self.address = address
        self.mistakes: list[str] = []
        """What scripts have got wrong, and what the browser has held back."""
        self.asked: list[str] = []
        """Every address that the page has asked for."""
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, place: str = "") -> "Console":
        """`place` is what stands behind the #."""
        self.page.goto(f"http://{self.address}/#/{place}")
        expect(self.heading).to_be_visible()
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
        """`label` may be a part of it."""
        fields = (within or self.page.locator("main")).locator("label").filter(has_text=label)
        fields.locator("input").fill(text)

    def choose(self, label: str, option: str, within: Locator | None = None) -> None:
        (within or self.page.locator("main")).get_by_role("combobox", name=label, exact=True).select_option(option)

    def told(self, sentence: str) -> None:
        """The notice that something has been done comes up."""
        expect(self.page.locator("#notice")).to_contain_text(sentence)

    def cells(self, topic: str, kind: str) -> Locator:
        """The marks of one kind in the drawing of a topic's partitions."""
        assert kind in PARTITION_KINDS
        return self.page.locator(f'[data-key="block {topic}"] [data-kind="{kind}"]')

    def in_order(self) -> None:
        """No script has failed, and nothing was asked of anybody but the broker."""
        assert self.mistakes == []
        elsewhere = [url for url in self.asked if urlsplit(url).netloc != self.address]
        assert elsewhere == []
        assert len(self.asked) > 5, "the page has asked for something at all"

    def close(self) -> None:
        self.page.context.close()

    def _note(self, kind: str, text: str) -> None:
        # A browser notes answers that are refusals, and brokers that are away, which is what some tests are about.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.mistakes.append(text)
