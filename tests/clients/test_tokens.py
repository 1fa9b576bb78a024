"""Clients with tokens: bearer tokens of an identity provider, and delegation tokens, on a listener with SASL."""

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from broker_fixture import RunningBroker, free_port, wait_until
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from identity_provider import AUDIENCE, ISSUER, claims, key_set_text, rsa_key, token
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from kio.schema.errors import ErrorCode
from sasl_client import Refusal, SaslClient

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
METADATA = 3
WAIT_S = 60.0
TOPIC = "flights"


class TokenBroker(RunningBroker):
    """A broker with a listener for tokens beside its open one."""

    def __init__(self, data: Path, keys: Path) -> None:
        super().__init__(data)
        self.keys, self.sasl_port = keys, free_port()
        self.keys.write_bytes(key_set_text())
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},SASL://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "1",
            "delegation.token.secret.key": "the secret of this test",
            "connection.failed.authentication.delay.ms": "0",
        }

    @property
    def closed_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def connect(self) -> SaslClient:
        return SaslClient(self.sasl_port)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    started = TokenBroker(folder / "data", folder / "keys.json")
    started.start()
    yield started
    started.stop()


def now_token(life_s: int = 300, **changes: object) -> str:
    now_ms = int(time.time() * 1000)
    return token(claims(now_ms, exp=now_ms // 1000 + life_s, **changes))


def confluent(broker: TokenBroker, text: Callable[[], str], life_s: int = 300, **options: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.closed_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _config: (text(), time.time() + life_s),
            **options,
        }
    )


def test_confluent_kafka_produces_with_a_bearer_token(broker: TokenBroker) -> None:
    producer = confluent(broker, now_token)
    outcomes: list[KafkaError | None] = []
    producer.produce(TOPIC, b"record", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    assert outcomes == [None]


def test_aiokafka_produces_with_a_bearer_token(broker: TokenBroker) -> None:
    class Provider(AiokafkaProvider):
        async def token(self) -> str:
            return now_token()

    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.closed_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        await producer.start()
        sent = await producer.send_and_wait(TOPIC, b"record")
        assert sent.topic == TOPIC
        await producer.stop()

    asyncio.run(story())


def test_kafka_python_produces_with_a_bearer_token(broker: TokenBroker) -> None:
    class Provider(AbstractTokenProvider):
        def __init__(self) -> None:
            pass

        def token(self) -> str:
            return now_token()

    producer = KafkaProducer(
        bootstrap_servers=broker.closed_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send(TOPIC, b"record").get(WAIT_S).topic == TOPIC
    producer.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda: now_token(aud="another"), "for another audience"),
        (lambda: now_token(life_s=-5), "has expired"),
        (lambda: token(claims(int(time.time() * 1000)), rsa_key("mallory"), kid="first"), "signature is wrong"),
    ],
    ids=["audience", "expired", "forged"],
)
def test_a_wrong_token_is_refused_with_its_reason(broker: TokenBroker, text: Callable[[], str], reason: str) -> None:
    refused = threading.Event()
    seen: list[str] = []

    def failed(error: KafkaError) -> None:
        seen.append(str(error))
        if error.code() == KafkaError._AUTHENTICATION:
            refused.set()

    producer = confluent(broker, text, error_cb=failed)
    wait_until(lambda: producer.poll(0.1) is not None and refused.is_set(), WAIT_S, "a refusal")
    assert any(reason in message for message in seen), seen
    assert reason in broker.output
    with broker.connect() as client, pytest.raises(Refusal, match=reason) as answered:
        client.bearer(text())
    assert answered.value.code is ErrorCode.sasl_authentication_failed
    assert text()[:40] not in broker.output, "a token is not logged"


def test_a_session_ends_with_its_token(broker: TokenBroker) -> None:
    with broker.connect() as client:
        client.bearer(now_token(life_s=300))
        assert 290_000 < client.lifetime_ms <= 300_000
    with broker.connect() as client:
        client.bearer(now_token(life_s=2))
        with pytest.raises(ConnectionError):
            ask_without_end(client)
    assert "the session has expired" in broker.output


def ask_without_end(client: SaslClient) -> None:
    while True:
        assert client.ask(METADATA, 12, topics=None).brokers


def test_a_newer_token_of_the_same_user_continues_a_session(broker: TokenBroker) -> None:
    with broker.connect() as client:
        client.bearer(now_token(life_s=200, sub="carol"))
        client.bearer(now_token(life_s=300, sub="carol"))
        assert client.lifetime_ms > 290_000
        assert client.ask(METADATA, 12, topics=None).brokers
    with broker.connect() as client:
        client.bearer(now_token(life_s=200, sub="carol"))
        with pytest.raises(Refusal, match="Cannot change principals"):
            client.bearer(now_token(life_s=300, sub="dave"))
        with pytest.raises(ConnectionError):
            client.ask(METADATA, 12, topics=None)


def test_a_new_key_of_the_provider_is_found(broker: TokenBroker) -> None:
    second = rsa_key("second")
    broker.keys.write_bytes(key_set_text(rsa_key(), second))
    now_ms = int(time.time() * 1000)

    def is_accepted() -> bool:
        with broker.connect() as client:
            try:
                client.bearer(token(claims(now_ms), second))
            except Refusal:
                return False
            return True

    wait_until(is_accepted, WAIT_S, "the new key")


def test_keys_are_not_changed_by_clients(broker: TokenBroker) -> None:
    """An address in the configuration makes the broker read it: only the broker's own file names one."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for key in (
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.issuer",
        "delegation.token.secret.key",
    ):
        entry = ConfigEntry(key, "file:///etc/passwd", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        with pytest.raises(Exception, match=key):
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    described = ConfigResource(ConfigResource.Type.BROKER, "1")
    rows = admin.describe_configs([described])[described].result(WAIT_S)
    secret = rows["delegation.token.secret.key"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert "the secret of this test" not in broker.output


def created(broker: TokenBroker, user: str, *renewers: str) -> tuple[str, str, bytes]:
    """Return a new delegation token of a user: its id, its SCRAM password and its secret."""
    with broker.connect() as client:
        client.bearer(now_token(sub=user))
        named = [{"principal_type": "User", "principal_name": name} for name in renewers]
        answer = client.ask(CREATE, 3, renewers=named, max_lifetime=timedelta(milliseconds=-1))
        assert answer.error_code is ErrorCode.none
        assert answer.principal_name == user
        return answer.token_id, base64.b64encode(answer.hmac).decode(), bytes(answer.hmac)


@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
def test_a_delegation_token_lets_in_until_it_is_expired(broker: TokenBroker, hash_name: str) -> None:
    token_id, password, secret = created(broker, "carol", "dave")
    with broker.connect() as client:
        client.scram(token_id, password, ",tokenauth=true", hash_name=hash_name)
        assert 0 < client.lifetime_ms <= 24 * 3600 * 1000
        assert client.ask(METADATA, 12, topics=None).brokers
        for api, fields in ((CREATE, {"renewers": ()}), (RENEW, {"hmac": secret}), (EXPIRE, {"hmac": secret})):
            assert client.ask(api, 2, **fields).error_code is ErrorCode.delegation_token_request_not_allowed
        assert client.ask(DESCRIBE, 3, owners=None).error_code is ErrorCode.delegation_token_request_not_allowed
    with broker.connect() as client:
        client.bearer(now_token(sub="dave"))
        assert [one.token_id for one in client.ask(DESCRIBE, 3, owners=None).tokens if one.hmac == secret] == [token_id]
        at_once = timedelta(milliseconds=-1)
        assert client.ask(EXPIRE, 2, hmac=secret, expiry_time_period=at_once).error_code is ErrorCode.none
    with broker.connect() as client, pytest.raises(Refusal, match="invalid credentials"):
        client.scram(token_id, password, ",tokenauth=true", hash_name=hash_name)


def test_a_token_is_no_password_and_its_secret_is_needed(broker: TokenBroker) -> None:
    token_id, password, _ = created(broker, "carol")
    attempts = (
        (token_id, password, ""),
        (token_id, "wrong", ",tokenauth=true"),
        (token_id, "", ",tokenauth=true"),
        ("carol", password, ",tokenauth=true"),
        ("unknown", password, ",tokenauth=true"),
        (token_id, password, ",tokenauth=false"),
        (f"delegation-token:{token_id}", "wrong", ""),
        ("delegation-token:", password, ""),
    )
    for user, secret, extensions in attempts:
        with broker.connect() as client, pytest.raises(Refusal, match="invalid credentials"):
            client.scram(user, secret, extensions)


def test_librdkafka_names_a_token_in_place_of_a_user(broker: TokenBroker) -> None:
    token_id, password, _ = created(broker, "carol")
    with broker.connect() as client:
        client.scram(f"delegation-token:{token_id}", password)
        assert client.ask(CREATE, 2, renewers=()).error_code is ErrorCode.delegation_token_request_not_allowed


def test_without_authentication_there_are_no_delegation_tokens(broker: TokenBroker) -> None:
    with SaslClient(broker.port) as client:
        answer = client.ask(CREATE, 3, renewers=(), max_lifetime=timedelta(milliseconds=-1))
        assert answer.error_code is ErrorCode.delegation_token_request_not_allowed
