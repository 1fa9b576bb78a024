"""Transactions in the console: open ones, one transactional id, and markers among records."""

import re

from broker_fixture import RunningBroker
from console_fixture import Console
from http_client import HttpClient
from playwright.sync_api import expect
from transactional_clients import ConfluentProducer


def test_open_transactions_are_shown_until_they_end(console: Console, api: HttpClient, served: RunningBroker) -> None:
    console.open("transactions")
    api.make_topic("orders", partitions=1)
    first, second = (ConfluentProducer(served.bootstrap, name) for name in ("z/first", "a second"))
    for producer in (first, second):
        producer.begin()
        producer.send("orders", b"an order")
    expect(console.table_rows).to_have_count(2)
    expect(console.table_rows.first).to_contain_text(re.compile("z/first.*Ongoing"))
    console.page.get_by_role("link", name="z/first").click()
    expect(console.heading).to_have_text("z/first")
    expect(console.table_rows).to_contain_text("orders")
    first.commit()
    second.abort()
    expect(console.page.locator(".empty")).to_contain_text("No partition is in an open transaction.")
    expect(console.page.locator(".facts")).to_contain_text("CompleteCommit")
    console.open("transactions")
    expect(console.page.locator(".empty")).to_contain_text("There are no open transactions")
    console.page.get_by_label("Only open").uncheck()
    expect(console.table_rows).to_have_count(2)


def test_an_unknown_transactional_id_is_said_to_be_unknown(console: Console) -> None:
    console.open("transactions/none")
    expect(console.page.locator(".empty")).to_contain_text(re.compile("There is no|does not exist"))


def test_markers_are_shown_as_what_they_are(console: Console, api: HttpClient, served: RunningBroker) -> None:
    api.make_topic("marked", partitions=1)
    producer = ConfluentProducer(served.bootstrap, "marking")
    producer.begin()
    producer.send("marked", b"kept")
    producer.commit()
    producer.begin()
    producer.send("marked", b"dropped")
    producer.abort()
    api.write("marked", "plain")
    console.open("topics/marked/records")
    records = console.page.get_by_role("region", name="Records").locator("tbody tr")
    console.choose("From", "earliest")
    console.press("Show")
    expect(records).to_have_count(4)
    expect(records.nth(1)).to_contain_text(re.compile(r"commit marker of producer \d+, epoch 0"))
    expect(records.nth(2)).to_contain_text("abort marker")
    console.choose("Transactions", "also open and aborted")
    console.press("Show")
    expect(records).to_have_count(5)
    expect(records.nth(2)).to_contain_text("dropped")
