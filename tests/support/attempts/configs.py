"""Configs that no one may set over the network, the administrator neither: addresses of keys, and secrets."""

import json
from collections.abc import Iterator
from functools import partial

from closed_cluster import ADMIN
from kio.schema.errors import ErrorCode

from attempts.attempt import Attempt, Audited, Port, Stranger, codes_of
from cordwood.cluster.kafka.api_keys import ApiKey

INVALID = ErrorCode.invalid_request.name.upper()
BROKER = 4
KEYS: dict[str, str] = {
    "sasl.oauthbearer.jwks.endpoint.url": "http://169.254.169.254/latest/meta-data",
    "sasl.oauthbearer.jwks.endpoint.ssl.truststore.location": "/etc/passwd",
    "sasl.oauthbearer.expected.issuer": "https://evil.example.org/",
    "sasl.oauthbearer.expected.audience": "anything",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.unencrypted.listeners": "UNENCRYPTED",
    "delegation.token.secret.key": "guess",
    "controller.quorum.secret": "guess",
    "super.users": "User:eve",
    "authorizer.class.name": "",
    "allow.everyone.if.no.acl.found": "true",
    "ssl.client.auth": "none",
    "ssl.key.password": "guess",
    "sasl.password": "guess",
    "audit.log.enable": "off",
    "audit.log.dir": "/tmp",
    "http.authentication": "none",
}


def _incremental(key: str, value: str, stranger: Stranger) -> str:
    config = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": (config,)}
    with stranger.kafka(Port.REPLICATION, stranger.cluster.context(ADMIN)) as client:
        return codes_of(client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,)))


def _replacing(key: str, value: str, stranger: Stranger) -> str:
    resource = {"resource_type": BROKER, "resource_name": "1", "configs": ({"name": key, "value": value},)}
    with stranger.kafka(Port.REPLICATION, stranger.cluster.context(ADMIN)) as client:
        return codes_of(client.ask(ApiKey.ALTER_CONFIGS, 2, resources=(resource,)))


def _over_http(key: str, value: str, stranger: Stranger) -> str:
    body = json.dumps({"configs": {key: value}}).encode()
    headers = {"Content-Type": "application/json"}
    tls = stranger.cluster.context(ADMIN)
    return stranger.http("PATCH", "/v1/brokers/1/configs", body, headers, tls).refusal


def _attempts() -> Iterator[Attempt]:
    for key, value in KEYS.items():
        for api, send in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, _incremental), (ApiKey.ALTER_CONFIGS, _replacing)):
            audited = Audited(api.name, INVALID, f"User:{ADMIN}", key)
            yield Attempt(f"{api.name} of {key}", Port.REPLICATION, partial(send, key, value), INVALID, audited)
        by_http = Audited(ApiKey.INCREMENTAL_ALTER_CONFIGS.name, INVALID, f"User:{ADMIN}", key)
        yield Attempt(f"HTTP: PATCH of {key}", Port.HTTP, partial(_over_http, key, value), f"400 {INVALID}", by_http)


CONFIGS = tuple(_attempts())
