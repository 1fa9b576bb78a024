"""Cuts in the console: shown with their topics, and dropped."""

from console_fixture import Console
from http_client import HttpClient
from playwright.sync_api import expect


def test_a_cut_is_shown_until_it_is_dropped(console: Console, api: HttpClient) -> None:
    api.make_topic("pinned", partitions=1)
    assert api.post("/v1/cuts", {"name": "monday", "topics": ["pinned"]}).status == 201
    console.open("cuts")
    expect(console.table_rows).to_contain_text("pinned")
    console.press("Drop")
    console.fill("Type monday to confirm", "monday", console.dialog)
    console.press("Drop", console.dialog)
    console.reported("Cut monday was dropped.")
    expect(console.page.locator(".empty")).to_contain_text("There are no cuts")
