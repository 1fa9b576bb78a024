"""max.connections.per.ip.overrides: an address with its own limit of connections."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_fixture import RunningBroker
from kio.schema.api_versions.v0.request import ApiVersionsRequest

from cordwood.client.blocking import connect
from cordwood.cluster.config.per_ip import PerIpMistake, per_ip_overrides
from cordwood.cluster.config.settings import Settings

ANSWER_S = 30.0
LIMIT = 3


def test_an_address_has_its_own_limit(tmp_path: Path) -> None:
    limits = {"max_connections_per_ip": "1000", "max_connections_per_ip_overrides": f"127.0.0.1:{LIMIT},10.0.0.7:9"}
    broker = RunningBroker(tmp_path / "data", **limits).start()
    try:
        with ExitStack() as stack:
            for _ in range(LIMIT):
                stack.enter_context(connect(broker.bootstrap, ANSWER_S)).ask(ApiVersionsRequest())
            with pytest.raises(ConnectionError), connect(broker.bootstrap, ANSWER_S) as one_more:
                one_more.ask(ApiVersionsRequest())
        assert f"max.connections.per.ip.overrides is {LIMIT}" in broker.output
    finally:
        broker.stop()


def test_addresses_of_both_kinds() -> None:
    rows = ("10.0.0.7:9", "[::1]:5", "::2:6")
    found = per_ip_overrides(Settings(max_connections_per_ip_overrides=rows))
    assert found == {"10.0.0.7": 9, "::1": 5, "::2": 6}


@pytest.mark.parametrize("row", ["10.0.0.7", ":5", "10.0.0.7:", "10.0.0.7:-1", "10.0.0.7:many"])
def test_a_row_without_a_limit_is_a_mistake(row: str) -> None:
    with pytest.raises(PerIpMistake, match="ADDRESS:NUMBER"):
        per_ip_overrides(Settings(max_connections_per_ip_overrides=(row,)))
