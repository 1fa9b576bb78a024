"""Topics and records in the console: create, look up, follow, configure and delete, with any names and values."""

import json

import pytest
from console_fixture import Console
from http_client import HttpClient
from playwright.sync_api import expect

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture
def letters(api: HttpClient) -> str:
    """Return a topic with three records."""
    name = f"letters-{len(api.get('/v1/topics').json['topics'])}"
    api.make_topic(name, partitions=1)
    api.write(name, "alpha", "beta", key="greek")
    api.write(name, json.dumps({"name": "gamma", "id": 12345678901234567890}), key="json")
    return name


def test_a_topic_is_created_and_deleted(console: Console, api: HttpClient) -> None:
    console.open("topics")
    console.press("Create a topic")
    console.fill("Name", "made-here", console.dialog)
    console.fill("Partitions", "4", console.dialog)
    console.press("Create", console.dialog)
    console.reported("Topic made-here was created: 4 partitions")
    expect(console.heading).to_have_text("made-here")
    expect(console.table_rows).to_have_count(4)
    console.press("Delete")
    delete = console.dialog.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    console.fill("to confirm", "made-her", console.dialog)
    expect(delete).to_be_disabled()
    console.fill("to confirm", "made-here", console.dialog)
    delete.click()
    console.reported("Topic made-here was deleted.")
    api.get("/v1/topics/made-here").refused(404)
    expect(console.page.get_by_role("link", name="made-here")).to_have_count(0)


def test_a_topic_can_be_created_with_the_keyboard_alone(console: Console, api: HttpClient) -> None:
    console.open("topics")
    keyboard = console.page.keyboard
    for _ in range(20):
        keyboard.press("Tab")
        if console.page.evaluate("document.activeElement.textContent") == "Create a topic":
            break
    assert console.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    keyboard.press("Enter")
    expect(console.dialog.get_by_label("Name")).to_be_focused()
    keyboard.type("by-keyboard")
    keyboard.press("Enter")
    console.reported("Topic by-keyboard was created")
    assert api.get("/v1/topics/by-keyboard").status == 200
    expect(console.heading).to_have_text("by-keyboard")
    expect(console.heading).to_be_focused()


def test_what_the_broker_refuses_is_shown_in_its_words(console: Console) -> None:
    console.open("topics")
    console.press("Create a topic")
    console.fill("Name", HOSTILE, console.dialog)
    console.press("Create", console.dialog)
    expect(console.dialog.get_by_role("alert")).to_contain_text("name")
    assert console.page.locator("img[src=x]").count() == 0
    console.page.keyboard.press("Escape")
    expect(console.dialog).to_have_count(0)


def test_records_are_looked_up_by_offset_time_and_key(console: Console, letters: str) -> None:
    console.open(f"topics/{letters}/records")
    expect(console.table_rows).to_have_count(3)
    console.choose("From", "offset")
    console.fill("Offset", "1")
    console.press("Show")
    expect(console.table_rows).to_have_count(2)
    expect(console.table_rows.first).to_contain_text("beta")
    console.choose("From", "time")
    console.fill("Time", "2001-01-01T00:00:00")
    console.press("Show")
    expect(console.table_rows).to_have_count(3)
    console.choose("From", "earliest")
    console.fill("Key", "json")
    console.press("Show")
    expect(console.table_rows).to_have_count(1)
    expect(console.table_rows).to_contain_text("gamma")


def test_values_are_shown_as_text_json_or_hex(console: Console, letters: str) -> None:
    console.open(f"topics/{letters}/records")
    newest = console.table_rows.first
    newest.locator("summary").click()
    expect(newest.locator("pre")).to_have_text('{\n  "name": "gamma",\n  "id": 12345678901234567890\n}')
    console.choose("Show as", "hex")
    expect(console.table_rows.last).to_contain_text("61 6c 70 68 61")
    console.choose("Show as", "text")
    expect(console.table_rows.last).to_contain_text("alpha")


def test_a_topic_is_followed_as_it_grows(console: Console, api: HttpClient, letters: str) -> None:
    console.open(f"topics/{letters}/records")
    console.press("Follow")
    expect(console.page.get_by_text("Following: 0 records")).to_be_visible()
    for number in range(5):
        api.write(letters, f"new-{number}")
    expect(console.table_rows.first).to_contain_text("new-4")
    expect(console.table_rows).to_have_count(5)
    console.press("Stop")
    api.write(letters, "unseen")
    expect(console.page.get_by_text("Stopped: Following: 5 records")).to_be_visible()
    expect(console.table_rows).to_have_count(5)


def test_what_users_write_stays_text(console: Console, api: HttpClient) -> None:
    api.make_topic("hostile", partitions=1)
    api.write("hostile", HOSTILE, key=HOSTILE)
    console.open("topics/hostile/records")
    expect(console.table_rows).to_contain_text(HOSTILE)
    assert console.page.locator("main img").count() == 0
    assert console.page.title().startswith("hostile")


def test_a_config_is_changed_and_taken_back(console: Console, api: HttpClient) -> None:
    api.make_topic("settable")
    console.open("topics/settable/configs")
    row = console.page.locator('tr[data-key="retention.ms"]')
    console.press("Change retention.ms")
    console.fill("Value", "never", console.dialog)
    console.press("Set", console.dialog)
    expect(console.dialog.get_by_role("alert")).to_contain_text("retention.ms")
    console.fill("Value", "60000", console.dialog)
    console.press("Set", console.dialog)
    expect(row).to_contain_text("60000")
    expect(row).to_contain_text("this topic")
    assert api.get("/v1/topics/settable").json["configs"] == {"retention.ms": "60000"}
    console.press("Change retention.ms")
    console.fill("Value", "", console.dialog)
    console.press("Reset to the default", console.dialog)
    expect(row).to_contain_text("default")


def test_preferred_leaders_are_elected(console: Console, letters: str) -> None:
    console.open(f"topics/{letters}")
    console.press("Elect preferred leaders")
    console.press("Elect", console.dialog)
    console.reported("0 partitions have another leader.")
