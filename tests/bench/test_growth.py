"""Growth measurements: a minimal protocol client, curves and promises, and the report of those that fail."""

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from cordwood.bench.growth.consumers import tail
from cordwood.bench.growth.curves import Area
from cordwood.bench.growth.place import (
    TOPIC,
    BenchPlace,
    create_topic_on,
    end_offset,
    fetch_us,
    produce_us,
    spread,
    start_s,
)
from cordwood.bench.growth.report import charts, files, save, sentences, show
from cordwood.bench.growth.wire import BlockingClient, FetchFrame, ProduceFrame, RequestFailed, batch_of
from cordwood.bench.machine import cpu_seconds
from cordwood.storage.batch import headers
from cordwood.storage.records import decode

MACHINE = {"cores": 2, "processor": "Planted", "memory_mb": 1000, "system": "Linux", "python": "3.11.7"}


@pytest.fixture
def place(tmp_path: Path) -> BenchPlace:
    return BenchPlace(tmp_path / "place", 1.0, lambda _: None)


@pytest.fixture
def area() -> Area:
    """Return an area with one flat curve, one growing curve, one kept promise and one broken promise."""
    planted = Area("log size", "GB of one log")
    for x, produced, held in ((1, 100.0, 60.0), (10, 110.0, 90.0), (100, 119.0, 240.0)):
        planted.curve("produce", "µs of CPU").add(x, produced)
        planted.curve("memory", "MB", "It keeps what it has.").add(x, held)
    planted.promise("memory with 100", 240.0, 150.0, "MB")
    planted.promise("produce with 100", 119.0, 120.0, "µs of CPU")
    planted.notes.append("A planted note.")
    return planted


def test_what_is_not_flat_and_what_is_not_kept_is_said(area: Area) -> None:
    assert list(sentences(area)) == [
        "Not flat: memory: 60 MB at 1, 240 at 100 (GB of one log). It keeps what it has.",
        "memory with 100: 240 MB, at most 150 MB: NOT KEPT.",
        "produce with 100: 119 µs of CPU, at most 120 µs of CPU: kept.",
        "A planted note.",
    ]


def test_the_table_has_every_point_and_the_growth(area: Area) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    show(console, [area])
    text = console.export_text()
    assert all(figure in text for figure in ("100", "110", "119", "1.2", "60", "90", "240", "4.0"))


def test_curves_of_one_unit_share_a_chart(area: Area) -> None:
    area.curve("fetch", "µs of CPU").add(1, 5.0)
    drawn = charts(area)
    assert list(drawn) == ["growth-log-size-1.svg", "growth-log-size-2.svg"]
    first = ElementTree.fromstring(drawn["growth-log-size-1.svg"])
    assert len(first.findall(".//{*}polyline")) == 2


def test_the_page_has_what_the_result_says_with_its_commit_and_charts(area: Area, tmp_path: Path) -> None:
    about = {"machine": MACHINE, "scale": 1.0}
    stored = json.loads(save(tmp_path, [area], about).read_text())
    assert [Area.loaded(each) for each in stored.pop("areas")] == [area]
    assert stored == about
    found = files(about | {"commit": "abc", "at": "2026-11-23T08:00:00+00:00"}, [area])
    page = found.pop("growth.md")
    assert "Commit abc, 2026-11-23: measured by" in page
    assert "| 119 |" in page
    pictures = [line.partition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert sorted(pictures) == sorted(found) != []


def test_the_client_gets_what_it_produced_and_the_refusals(place: BenchPlace) -> None:
    with place.broker("one") as broker, BlockingClient(broker.address) as client:
        create_topic_on(broker.address, 3)
        client.hello()
        spread(broker.address, 3, 9)
        assert client.produce(ProduceFrame(TOPIC, 2, batch_of(20))) == 3
        request = FetchFrame(TOPIC, 2)
        batches = request.batches_in(client.exchange(request.at(1)))
        assert [header.base_offset for header in headers(bytes(batches))] == [1, 2, 3]
        request = FetchFrame(TOPIC, 2)
        (record,) = decode(bytes(request.batches_in(client.exchange(request.at(3)))))
        assert record.value == bytes(range(20))
        with pytest.raises(RequestFailed, match="Produce: error 3"):
            client.produce(ProduceFrame(TOPIC, 7, batch_of(20)))
        with pytest.raises(RequestFailed, match="Fetch: error 1"):
            request.batches_in(client.exchange(request.at(99)))


def test_a_broker_is_charged_for_its_requests_and_starts_again_on_its_data(place: BenchPlace) -> None:
    with place.broker("one") as broker:
        create_topic_on(broker.address, 1)
        pids = [broker.pid]
        assert 5 < produce_us(broker.address, pids, 200) < 20_000
        assert 5 < fetch_us(broker.address, pids, range(10), 200) < 20_000
        before = cpu_seconds(pids)
        assert before > 0.05
        end = end_offset(broker.address)
        broker.kill()
        assert 0 < start_s(broker) < 30
        assert end_offset(broker.address) == end + 1
    assert not list(place.directory.iterdir())


def test_every_consumer_at_the_end_gets_every_record(place: BenchPlace) -> None:
    with place.broker("one") as broker:
        create_topic_on(broker.address, 1)
        tailed = tail(broker.address, consumers=3, rate=200, seconds=1.0)
    assert (tailed.delivered, tailed.missing) == (600, 0)
    assert all(latency > 0 for latency in tailed.latencies_ms)
