"""Subscriptions of client instances, and pushes that are refused (KIP-714)."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.telemetry import client_instances
from cordwood.cluster.telemetry.client_instances import ClientInstances
from cordwood.storage.batch import Compression

JAVA, OTHER = UUID(int=1), UUID(int=2)
CLIENT = {
    "client_id": "loader-7",
    "client_instance_id": str(JAVA),
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.2.0",
    "client_source_address": "10.0.0.1",
    "client_source_port": "",
}


class Clients:
    """The instances of one broker whose subscriptions a test sets."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.configs: dict[str, dict[str, str]] = subscriptions
        self.instances = ClientInstances(lambda: self.configs, 1000)

    def push(
        self, now_s: float, subscription_id: int, compression: int = 0, size: int = 10, *, ends: bool = False
    ) -> None:
        self.instances.check_push(JAVA, CLIENT, subscription_id, compression, size, now_s, is_terminating=ends)


def refusal(clients: Clients, *arguments: float, **options: bool) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        clients.push(*arguments, **options)  # type: ignore[arg-type]
    return refused.value.code


def test_a_client_that_no_subscription_matches_pushes_nothing() -> None:
    clients = Clients(all={"metrics": "org.apache", "match": "client_id=other-.*"})
    assert clients.instances.subscribed(JAVA, CLIENT, 0).prefixes == ()


def test_matching_subscriptions_together_decide() -> None:
    clients = Clients(
        a={"metrics": "a.b,c", "interval.ms": "5000"},
        b={"metrics": "c,d", "interval.ms": "1000", "match": "client_id=loader-[0-9]+,client_software_name=.*java"},
        c={"metrics": "e", "match": "client_source_address=192.*"},
    )
    wanted = clients.instances.subscribed(JAVA, CLIENT, 0)
    assert (wanted.prefixes, wanted.interval_ms) == (("a.b", "c", "d"), 1000)


def test_a_subscription_to_all_metrics_names_no_other_prefix() -> None:
    clients = Clients(a={"metrics": "a.b"}, b={"metrics": "*"})
    assert clients.instances.subscribed(JAVA, CLIENT, 0).prefixes == ("*",)


def test_an_instance_that_asks_again_too_soon_is_refused() -> None:
    clients = Clients(a={"metrics": "a", "interval.ms": "1000"})
    clients.instances.subscribed(JAVA, CLIENT, 0)
    with pytest.raises(Refused) as refused:
        clients.instances.subscribed(JAVA, CLIENT, 0.9)
    assert refused.value.code is ErrorCode.throttling_quota_exceeded
    clients.instances.subscribed(OTHER, CLIENT, 0.9)
    clients.instances.subscribed(JAVA, CLIENT, 1.0)


def test_a_push_that_comes_too_soon_is_refused_but_for_the_last() -> None:
    clients = Clients(a={"metrics": "a", "interval.ms": "1000"})
    wanted = clients.instances.subscribed(JAVA, CLIENT, 0)
    clients.push(0, wanted.subscription_id)
    assert refusal(clients, 0.5, wanted.subscription_id) is ErrorCode.throttling_quota_exceeded
    clients.push(0.6, wanted.subscription_id, ends=True)
    assert refusal(clients, 9, wanted.subscription_id) is ErrorCode.invalid_request


def test_a_changed_subscription_sends_the_client_back_at_once() -> None:
    clients = Clients(a={"metrics": "a", "interval.ms": "1000"})
    old = clients.instances.subscribed(JAVA, CLIENT, 0)
    clients.push(0, old.subscription_id)
    clients.configs = {"a": {"metrics": "b", "interval.ms": "1000"}}
    assert refusal(clients, 1, old.subscription_id) is ErrorCode.unknown_subscription_id
    new = clients.instances.subscribed(JAVA, CLIENT, 1.1)
    assert new.prefixes == ("b",)
    clients.push(1.1, new.subscription_id)


def test_a_push_of_an_unknown_codec_or_of_too_many_bytes_is_refused() -> None:
    clients = Clients(a={"metrics": "a", "interval.ms": "1000"})
    wanted = clients.instances.subscribed(JAVA, CLIENT, 0).subscription_id
    assert refusal(clients, 0, wanted, 9) is ErrorCode.unsupported_compression_type
    clients.instances.subscribed(JAVA, CLIENT, 0.1)
    assert refusal(clients, 1, wanted, Compression.ZSTD, 1001) is ErrorCode.telemetry_too_large


def test_a_push_of_an_instance_that_never_asked_is_of_an_unknown_subscription() -> None:
    clients = Clients(a={"metrics": "a"})
    assert refusal(clients, 0, 12345) is ErrorCode.unknown_subscription_id


def test_the_instances_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 10)
    clients = Clients(a={"metrics": "a"})
    for number in range(50):
        clients.instances.subscribed(UUID(int=number), CLIENT, 0)
    assert list(clients.instances.instances) == [UUID(int=number) for number in range(40, 50)]
