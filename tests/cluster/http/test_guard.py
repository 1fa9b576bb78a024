"""HTTP request guard: requests from other sites' pages are refused, also after DNS rebinding."""

import pytest
from http_client import JSON, HttpClient

from cordwood.cluster.config.listeners import http_names
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.guard import Guard

HOME = Guard("127.0.0.1")
OPEN = Guard("0.0.0.0", frozenset({"broker-1.example", "broker-1"}))


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
@pytest.mark.parametrize("guard", [HOME, OPEN])
def test_a_broker_answers_to_the_names_of_loopback(guard: Guard, host: str) -> None:
    assert guard.why_not("GET", {"Host": host}) is None
    assert guard.why_not("POST", {"Host": host, "Origin": f"http://{host}"}) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "", "[", "10.0.0.1"])
def test_another_name_that_leads_to_loopback_is_not_the_brokers(host: str) -> None:
    for method in ("GET", "DELETE"):
        assert "http.allowed.hosts" in (HOME.why_not(method, {"Host": host}) or "")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "broker-1.evil.example", "10.0.0.1.nip.io"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_page_that_gives_the_broker_a_name_of_its_own_is_not_answered(host: str, method: str) -> None:
    # After DNS rebinding the browser sees page and broker as one origin.
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert "http.allowed.hosts" in (OPEN.why_not(method, headers) or "")
    assert Guard("0.0.0.0", frozenset({"*"})).why_not(method, headers) is None


@pytest.mark.parametrize("host", ["10.0.0.1:8080", "[fe80::1]:8080", "broker-1", "Broker-1.example:8080"])
def test_a_broker_on_all_interfaces_answers_to_its_addresses_and_names(host: str) -> None:
    assert OPEN.why_not("DELETE", {"Host": host, "Origin": f"http://{host.lower()}"}) is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9", "http://[", "file://"])
@pytest.mark.parametrize("guard", [HOME, OPEN])
def test_pages_from_elsewhere_change_nothing(guard: Guard, origin: str) -> None:
    headers = {"Host": "localhost:8080", "Origin": origin}
    assert "may not send requests that change data" in (guard.why_not("POST", headers) or "")
    assert guard.why_not("GET", headers) is None


def test_what_a_browser_says_of_other_sites_counts() -> None:
    headers = {"Host": "localhost:8080"}
    for site in ("cross-site", "same-site"):
        assert HOME.why_not("DELETE", {**headers, "Sec-Fetch-Site": site})
    for site in ("same-origin", "none"):
        assert HOME.why_not("DELETE", {**headers, "Sec-Fetch-Site": site}) is None


def test_a_name_that_is_allowed_is_the_brokers() -> None:
    settings = Settings(
        listeners=("PLAINTEXT://0.0.0.0:9092",),
        advertised_listeners=("PLAINTEXT://Kafka.example:9092",),
        http_allowed_hosts=("console.example",),
    )
    assert http_names(settings, "Machine") == {"machine", "kafka.example", "console.example"}


def test_a_served_broker_keeps_to_it(api: HttpClient) -> None:
    api.get("/v1/cluster", host="evil.example").refused(403, "evil.example")
    api.post("/v1/topics", {"name": "forged"}, origin="http://evil.example").refused(403, "evil.example")
    api.get("/v1/topics/forged").refused(404)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        api.post("/v1/topics", b'{"name": "forged"}', content_type=content_type).refused(415, JSON)
    api.get("/v1/topics/forged").refused(404)
    assert api.get("/healthz", host="probe.example").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/../cluster", "/v1/topics/..%2f..%2fetc%2fpasswd", "/v1/topics/%00", "/v1/topics/%ff", "//v1/topics",
        "/v1/topics/%252e%252e/configs", "/v1/brokers/1/../../etc", "/v1/groups/%0d%0aSet-Cookie:x",
        "/v1/topics//configs",
    ],
)  # fmt: skip
def test_tricks_with_paths_find_nothing(api: HttpClient, path: str) -> None:
    answer = api.get(path)
    answer.refused(404)
    assert "Set-Cookie" not in answer.headers


def test_compressed_bodies_are_refused(api: HttpClient) -> None:
    api.ask("POST", "/v1/topics", b"\x1f\x8b", {"Content-Type": JSON, "Content-Encoding": "gzip"}).refused(
        415, "Content-Encoding"
    )
