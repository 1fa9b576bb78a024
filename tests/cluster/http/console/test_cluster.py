"""The console of a three-broker cluster: a killed broker appears without a reload, and so does its return."""

import re
from collections.abc import Iterator

import pytest
from broker_fixture import wait_until
from console_fixture import Console
from http_client import HttpClient
from local_cluster import LocalCluster
from playwright.sync_api import Browser, expect

SEEN_MS = 30_000
"""Ten times the 3 s that an idle machine takes."""
BACK_MS = 30_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    three = LocalCluster(tmp_path_factory.mktemp("three") / "cluster", 3)
    three.up()
    HttpClient(three.broker(1)["http"]).make_topic("orders", partitions=6, replication_factor=3)
    try:
        yield three
    finally:
        three.end()


@pytest.fixture
def console(browser: Browser, cluster: LocalCluster) -> Iterator[Console]:
    """Yield the console of broker 1 once the cluster is healthy."""
    cluster.up()
    opened = Console(browser, cluster.broker(1)["http"]).open()
    expect(opened.heading).to_contain_text("Healthy", timeout=BACK_MS)
    yield opened
    opened.in_order()
    opened.close()


def test_a_killed_broker_shows_and_so_does_its_return(console: Console, cluster: LocalCluster) -> None:
    expect(console.cells("orders", "leader")).to_have_count(6)
    cluster.kill(3)
    expect(console.heading).to_contain_text("Broker 3 is out of service.", timeout=SEEN_MS)
    expect(console.page.get_by_role("row", name="Broker 3")).to_contain_text("out of service")
    expect(console.cells("orders", "down")).to_have_count(6, timeout=SEEN_MS)
    expect(console.cells("orders", "leader")).to_have_count(6)
    cluster.up()
    wait_until(lambda: is_in_service(cluster, 3), BACK_MS / 1000, "broker 3 in service")
    expect(console.page.get_by_role("row", name="Broker 3")).to_contain_text("in service", timeout=SEEN_MS)
    expect(console.heading).to_contain_text("Healthy: 3 brokers", timeout=BACK_MS)
    expect(console.cells("orders", "down")).to_have_count(0)


def is_in_service(cluster: LocalCluster, broker_id: int) -> bool:
    brokers = HttpClient(cluster.broker(1)["http"]).get("/v1/cluster").json["brokers"]
    return not next(broker["is_fenced"] for broker in brokers if broker["broker_id"] == broker_id)


def test_the_page_says_that_its_own_broker_is_gone_and_goes_on_when_it_is_back(
    console: Console, cluster: LocalCluster
) -> None:
    cluster.kill(1)
    banner = console.page.locator("#banner")
    expect(banner).to_contain_text("Broker 1, which serves this page, has not answered", timeout=SEEN_MS)
    cluster.up()
    expect(banner).to_be_empty(timeout=BACK_MS)
    expect(console.heading).to_contain_text("Healthy", timeout=BACK_MS)


def test_a_broker_that_may_not_stop_says_why(console: Console, cluster: LocalCluster) -> None:
    console.press("Can it stop?", console.page.get_by_role("row", name="Broker 1"))
    expect(console.dialog).to_contain_text("Yes: clients would not be affected.")
    cluster.kill(2)
    expect(console.heading).to_contain_text("Broker 2 is out of service.")
    console.press("Check again", console.dialog)
    expect(console.dialog).to_contain_text("the metadata quorum would have 1 of its 3 voters and needs 2")
    console.press("Cancel", console.dialog)


def test_what_is_written_is_drawn(console: Console, cluster: LocalCluster) -> None:
    HttpClient(cluster.broker(2)["http"]).write("orders", *"abcdefgh")
    written = console.page.locator('[data-key="chart Records written"]')
    expect(written).to_contain_text("/s")
    expect(written.locator("path")).to_have_attribute("d", re.compile(r"M.*L"))
