"""The console page: served by the broker alone, usable on a phone, in light and dark."""

import re
from importlib.resources import files

import pytest
from broker_fixture import RunningBroker
from console_fixture import Console
from http_client import HttpClient
from playwright.sync_api import Browser, expect

PLACES = (
    *("", "topics", "topics/{}", "topics/{}/records", "topics/{}/configs", "groups"),
    *("transactions", "transactions/none", "brokers", "brokers/1"),
)


@pytest.fixture(scope="module")
def shown(served: RunningBroker) -> str:
    """Return a topic of many partitions with a long record."""
    api = HttpClient(served.settings["http.listen"])
    api.make_topic("shown", partitions=30)
    api.write("shown", "long " * 200, key="k" * 100)
    return "shown"


@pytest.mark.parametrize("width", [320, 768, 1920])
def test_every_place_fits_its_window(browser: Browser, served: RunningBroker, shown: str, width: int) -> None:
    console = Console(browser, served.settings["http.listen"], width)
    for place in PLACES:
        console.open(place.format(shown))
        expect(console.page.locator("main")).not_to_contain_text("Loading")
        assert console.page.evaluate("document.documentElement.scrollWidth") <= width, place
    console.in_order()
    console.close()


def test_light_and_dark_are_the_systems_until_they_are_chosen(browser: Browser, served: RunningBroker) -> None:
    console = Console(browser, served.settings["http.listen"], scheme="dark").open()
    assert is_dark(console)
    console.page.get_by_label("Theme").select_option("light")
    assert not is_dark(console)
    console.page.reload()
    expect(console.heading).to_be_visible()
    assert not is_dark(console), "the choice is kept"
    console.in_order()
    console.close()


def is_dark(console: Console) -> bool:
    red, *_ = map(int, console.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)"))
    return red < 128


def test_an_empty_cluster_says_what_to_do(console: Console) -> None:
    console.open("groups")
    expect(console.page.locator(".empty")).to_contain_text("consumers with a group.id appear here")
    console.open("topics/nowhere")
    expect(console.page.locator(".empty")).to_contain_text("The topic does not exist.")
    console.open("brokers/9")
    expect(console.page.locator(".empty")).to_contain_text("There is no broker 9.")


def test_the_page_may_load_nothing_from_elsewhere_and_stand_in_no_frame(api: HttpClient) -> None:
    for path in ("/", "/console/main.js", "/console/style.css", "/console/mark.svg"):
        answer = api.get(path)
        assert answer.status == 200
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert b"http://" not in answer.content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in answer.content


def test_no_script_makes_markup_of_text() -> None:
    scripts = {
        file.name: file.read_text() for file in files("cordwood.cluster.http.console").joinpath("static").iterdir()
    }
    assert "textContent" in scripts["dialogs.js"]
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function")
    assert {name: markup.findall(text) for name, text in scripts.items() if markup.search(text)} == {}


def test_what_has_not_changed_is_not_sent_again(api: HttpClient) -> None:
    first = api.get("/console/main.js")
    again = api.get("/console/main.js", if_none_match=first.headers["ETag"])
    assert (again.status, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "..%2froutes.py", "%2e%2e%2fpage.html"])
def test_there_are_no_files_but_the_consoles_own(api: HttpClient, name: str) -> None:
    api.get(f"/console/{name}").refused(404)


def test_pulses_show_how_long_requests_take(api: HttpClient) -> None:
    before = api.get("/console/pulse").json
    api.make_topic("beating")
    api.write("beating", "a")
    pulse = api.get("/console/pulse").json
    assert pulse["broker_id"] == 1
    assert pulse["why_not_ready"] is None
    assert pulse["produce_seconds"]["count"] == before["produce_seconds"]["count"] + 1
    assert pulse["flush_seconds"]["count"] > before["flush_seconds"]["count"]
    assert pulse["produced_bytes"] > before["produced_bytes"]
    assert pulse["produce_seconds"]["counts"][-1] == pulse["produce_seconds"]["count"]
