"""The OpenAPI description: valid, complete, and true for any request to a served broker."""

import os
from typing import Any

import pytest
import schemathesis
from http_client import HttpClient
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate

from cordwood.cluster.http.api.table import ROUTES

CASES = int(os.environ.get("CORDWOOD_HTTP_CASES", "500"))
"""Cases of all operations together; a release runs with `CORDWOOD_HTTP_CASES=5000`."""
HTTP_S = 20.0
METHODS = {"get", "post", "patch", "delete"}


def operations(description: dict[str, Any]) -> list[tuple[str, str]]:
    return [(method, path) for path, row in description["paths"].items() for method in row if method in METHODS]


def test_the_description_is_valid_and_has_every_route(api: HttpClient) -> None:
    description = api.get("/openapi.json").json
    validate(description)
    assert sorted(operations(description)) == sorted((route.method.lower(), route.path) for route in ROUTES)


def test_every_operation_says_what_it_does(api: HttpClient) -> None:
    description = api.get("/openapi.json").json
    for method, path in operations(description):
        operation = description["paths"][path][method]
        assert operation["summary"].endswith("."), (method, path)
        assert {"200", "201"} & operation["responses"].keys(), (method, path)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_is_answered_with_a_failure(api: HttpClient, route: Any) -> None:
    api.make_topic("t") if api.get("/v1/topics/t").status == 404 else None
    url = f"http://{api.address}"
    description = schemathesis.openapi.from_dict(api.get("/openapi.json").json)
    operation = description[route.path][route.method]
    tried = 0

    @settings(
        max_examples=max(CASES // len(ROUTES), 1), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def asked(case: Any) -> None:
        nonlocal tried
        tried += 1
        answer = case.call(base_url=url, timeout=HTTP_S)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        if answer.status_code >= 400:
            assert answer.json().keys() >= {"error", "code"}, answer.text

    asked()
    assert tried
