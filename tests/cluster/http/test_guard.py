"""Who may ask: a page of another site may not, whatever name it has given the broker."""

import pytest
from http_client import JSON, HttpClient

from cordwood.cluster.http.guard import why_not

HOME = "127.0.0.1"


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
def test_a_broker_on_loopback_answers_to_its_names(host: str) -> None:
    assert why_not("GET", {"Host": host}, HOME) is None
    assert why_not("POST", {"Host": host, "Origin": f"http://{host}"}, HOME) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "", "[", "10.0.0.1"])
def test_another_name_that_leads_to_loopback_is_somebody_elses(host: str) -> None:
    assert "127.0.0.1 only" in (why_not("GET", {"Host": host}, HOME) or "")
    assert why_not("GET", {"Host": host}, "0.0.0.0") is None


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9", "http://[", "file://"])
def test_pages_from_elsewhere_change_nothing(origin: str) -> None:
    headers = {"Host": "localhost:8080", "Origin": origin}
    assert "may not change anything" in (why_not("POST", headers, HOME) or "")
    assert why_not("GET", headers, HOME) is None


def test_what_a_browser_says_of_other_sites_counts() -> None:
    headers = {"Host": "localhost:8080"}
    for site in ("cross-site", "same-site"):
        assert why_not("DELETE", {**headers, "Sec-Fetch-Site": site}, HOME)
    for site in ("same-origin", "none"):
        assert why_not("DELETE", {**headers, "Sec-Fetch-Site": site}, HOME) is None


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
