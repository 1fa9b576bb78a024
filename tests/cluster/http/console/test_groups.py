"""Consumer groups in the console: lag, offset reset and deletion."""

import re

from console_fixture import Console
from http_client import HttpClient
from playwright.sync_api import expect


def standing(api: HttpClient, group: str, topic: str) -> None:
    """Create a topic of five records and commit offset 2 for the group, which has no members."""
    api.make_topic(topic, partitions=1)
    api.write(topic, *"abcde")
    assert api.post(f"/v1/groups/{group}/reset", {"to": "2", "topics": [topic]}).status == 200


def test_a_group_is_reset_once_it_was_seen_what_would_change(console: Console, api: HttpClient) -> None:
    standing(api, "billing", "bills")
    console.open("groups")
    console.page.get_by_role("link", name="billing").click()
    expect(console.table_rows).to_contain_text("bills")
    console.press("Reset …")
    console.press("Preview", console.dialog)
    expect(console.dialog.locator("tbody tr")).to_have_text("bills020\N{MINUS SIGN}2")
    assert api.get("/v1/groups/billing").json["lag_records"] == 3, "nothing has been done yet"
    console.choose("New position", "offset", console.dialog)
    console.fill("Offset", "4", console.dialog)
    expect(console.dialog.locator("tbody tr")).to_have_count(0)
    console.press("Preview", console.dialog)
    expect(console.dialog.locator("tbody tr")).to_have_text("bills024+2")
    console.press("Reset", console.dialog)
    console.reported("The offsets of group billing were reset in 1 partition.")
    assert api.get("/v1/groups/billing").json["lag_records"] == 1
    expect(console.table_rows.first).to_contain_text("4")


def test_lag_is_drawn_over_time(console: Console, api: HttpClient) -> None:
    standing(api, "slow", "backlog")
    console.open("groups/slow")
    lag = console.page.locator('[data-key="chart Lag"]')
    expect(lag).to_contain_text("behind 3 records")
    api.write("backlog", "f", "g")
    expect(lag).to_contain_text("behind 5 records")
    expect(lag.locator("path")).to_have_attribute("d", re.compile(r"M.*L"))


def test_a_group_is_deleted_by_its_name(console: Console, api: HttpClient) -> None:
    standing(api, "leaving", "left")
    console.open("groups/leaving")
    console.press("Delete")
    console.fill("to confirm", "leaving", console.dialog)
    console.press("Delete", console.dialog)
    console.reported("Group leaving was deleted.")
    api.get("/v1/groups/leaving").refused(404)
