"""Quotas in the console: set, shown and removed."""

from console_fixture import Console
from playwright.sync_api import expect


def test_a_quota_is_set_and_removed(console: Console) -> None:
    console.open("quotas")
    expect(console.page.locator(".empty")).to_contain_text("There are no quotas")
    console.press("Set a quota")
    console.fill("User", "ann", console.dialog)
    console.fill("Client ID", "(default)", console.dialog)
    console.fill("Value", "1048576", console.dialog)
    console.press("Set", console.dialog)
    console.reported("producer_byte_rate of user ann, client-id (default) was set.")
    expect(console.table_rows).to_contain_text("producer_byte_rate 1")
    console.press("Remove")
    console.press("Remove", console.dialog)
    console.reported("was removed.")
    expect(console.page.locator(".empty")).to_contain_text("There are no quotas")
