"""The console's pure modules, called in the browser."""

from collections.abc import Iterator
from typing import Any

import pytest
from broker_fixture import RunningBroker
from console_fixture import Console
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def page(browser: Browser, served: RunningBroker) -> Iterator[Console]:
    """Yield one open page that can import the modules; they keep no state between calls."""
    opened = Console(browser, served.settings["http.listen"]).open()
    yield opened
    opened.in_order()
    opened.close()


def call(page: Console, module: str, expression: str) -> Any:
    """Return the value of an expression in which `it` is the module."""
    return page.page.evaluate(f"import('/console/{module}.js').then((it) => {expression})")


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 0.015), (0.99, 0.1), (0.25, 0.01)], ids=["median", "above the last bound", "a bound"]
)
def test_a_quantile_lies_between_the_bounds(page: Console, share: float, expected: float) -> None:
    before = "{bounds: [0.01, 0.02, 0.1], counts: [0, 0, 0], count: 0}"
    now = "{bounds: [0.01, 0.02, 0.1], counts: [1, 3, 3], count: 4}"
    assert call(page, "rates", f"it.quantile({share}, {before}, {now})") == pytest.approx(expected)


def test_what_did_not_happen_has_no_quantile(page: Console) -> None:
    same = "{bounds: [1], counts: [5], count: 5}"
    assert call(page, "rates", f"it.quantile(0.5, {same}, {same})") is None


def test_a_rate_leaves_out_partitions_that_are_not_known_twice(page: Console) -> None:
    before = 'new Map([["a/0", 10], ["a/1", 5], ["a/2", null], ["b/0", 7]])'
    now = 'new Map([["a/0", 30], ["a/1", null], ["a/2", 99], ["b/0", 3], ["c/0", 1000]])'
    assert call(page, "rates", f"it.recordsRate({before}, {now}, 2000)") == 10
    assert call(page, "rates", "it.recordsRate(new Map(), new Map([['a/0', 1]]), 1000)") is None


def test_a_count_that_begins_anew_has_no_rate(page: Console) -> None:
    assert call(page, "rates", "it.rate(100, 3, 1000)") is None
    assert call(page, "rates", "it.rate(3, 100, 0)") is None


@pytest.mark.parametrize(
    ("text", "how", "shown"),
    [
        ("plain", "text", "plain"),
        ("3", "text", "3"),
        ('{"a":[],"b":{"c":"{,}"}}', "json", '{\n  "a": [],\n  "b": {\n    "c": "{,}"\n  }\n}'),
        ('{"id":12345678901234567890}', "json", '{\n  "id": 12345678901234567890\n}'),
        ("ÿ\u0001", "hex", "c3 bf 01"),
    ],
)
def test_bytes_are_shown_as_what_they_look_like(page: Console, text: str, how: str, shown: str) -> None:
    found = call(page, "decode", f"it.decoded(new TextEncoder().encode({text!r}), 'auto')")
    assert (found["how"], found["text"]) == (how, shown)


def test_bytes_that_are_no_text_are_hex_whatever_was_wanted(page: Console) -> None:
    assert call(page, "decode", "it.decoded(new Uint8Array([255, 0]), 'json').text") == "ff 00"


@pytest.mark.parametrize(
    ("number", "written"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), ("null", "\N{EN DASH}")]
)
def test_sizes_have_units(page: Console, number: Any, written: str) -> None:
    assert call(page, "format", f"it.bytes({number})") == written


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Healthy: 3 brokers, 1 partition in sync."),
        (
            {"controller": "null"},
            "There is no controller: no topic can be created, no leader elected and no config changed.",
        ),
        ({"offline_partitions": 2}, "2 partitions without a leader: they cannot be read or written."),
        ({"under_replicated_partitions": 1}, "1 partition under-replicated."),
    ],
)
def test_the_worst_is_said_first(page: Console, changes: dict[str, Any], sentence: str) -> None:
    fields = {
        "controller": 1, "partition_count": 1, "offline_partitions": 0, "under_min_isr_partitions": 0,
        "under_replicated_partitions": 0,
    } | changes  # fmt: skip
    cluster = ", ".join(f"{name}: {value}" for name, value in fields.items())
    brokers = "[1, 2, 3].map((broker_id) => ({broker_id, is_fenced: false}))"
    assert call(page, "health", f"it.healthOf({{{cluster}, brokers: {brokers}}}).sentences[0]") == sentence
