"""Authentication of connections by raw frames: order, both framings, failures, sessions and re-authentication."""

import asyncio
import struct

import pytest
from kio.schema.errors import ErrorCode
from sasl_fixture import ALL, SaslClient, SaslFixture, tell
from scramp import ScramClient

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.authenticator import FRAME_BYTES_MAX, FRAMES_MAX
from cordwood.cluster.kafka.on_behalf import encode_on_behalf
from cordwood.cluster.kafka.registry import KAFKA_APIS
from cordwood.cluster.kafka.server import AUTHENTICATION_S_MAX
from cordwood.cluster.security.principal import ANONYMOUS, Identity, Principal
from cordwood.replication.frames import FIRST_KEY_BYTE

ALICE = Principal("User", "alice")
INVALID = "Authentication failed: Invalid username or password"
DELAY_S = 0.1
LIFETIME_MS = 10_000


def head(api: int, version: int = 0) -> bytes:
    return struct.pack(">hhih", api, version, 1, -1)


async def is_served(client: SaslClient) -> bool:
    """Send a request that needs authentication. Return whether it is answered."""
    return bool((await client.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())).topics == ())


@pytest.mark.parametrize("version", range(3))
def test_plain_authenticates_in_each_version(version: int) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        assert (await client.ask(ApiKey.API_VERSIONS, 0)).error_code is ErrorCode.none
        shaken = await client.shake("PLAIN")
        assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.none, (*ALL, "SCRIPTED"))
        assert client.connection.identity.principal == ANONYMOUS
        answer = await client.send(b"\0alice\0secret", version)
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b"")
        assert (client.connection.identity.principal, client.connection.identity.mechanism) == (ALICE, "PLAIN")
        assert await is_served(client)

    tell(story)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_authenticates_with_and_without_headers(mechanism: str) -> None:
    async def story(broker: SaslFixture) -> None:
        for version in (0, 1):
            client, scram = broker.stranger(), ScramClient([mechanism], "alice", "secret")
            await client.shake(mechanism, version)

            async def exchange(message: str, client: SaslClient = client, version: int = version) -> str:
                if version:
                    return str(bytes((await client.send(message.encode())).auth_bytes), "utf-8")
                client.push(message.encode())
                return (await client.raw()).decode()

            scram.set_server_first(await exchange(scram.get_client_first()))
            scram.set_server_final(await exchange(scram.get_client_final()))
            assert client.connection.identity.principal == ALICE
            assert await is_served(client)

    tell(story)


def test_a_raw_message_may_be_shorter_than_a_request_header() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("SCRIPTED", version=0)
        client.push(b"eve")
        assert await client.raw() == b"welcome"
        assert client.connection.identity.principal.name == "eve"

    tell(story)


@pytest.mark.parametrize("api", sorted({int(key) for key in KAFKA_APIS} - {17, 18}))
def test_nothing_else_is_handled_before_authentication(api: int) -> None:
    async def story(broker: SaslFixture) -> None:
        fresh, shaken = broker.stranger(), broker.stranger()
        await shaken.shake("PLAIN")
        for client in (fresh, shaken):
            if client is fresh or api != ApiKey.SASL_AUTHENTICATE:
                client.push(head(api))
                await client.end()
                assert not client.has_answers

    tell(story)


@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE])
def test_an_exchange_is_not_interrupted(api: int) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("PLAIN")
        client.push(head(api))
        await client.end()
        assert not client.has_answers

    tell(story)


@pytest.mark.parametrize("frame", [bytes((FIRST_KEY_BYTE,)) + bytes(20), bytes((0xFF,)) * 20, b"", b"\0", b"GET / HTT"])
def test_a_frame_of_a_broker_or_of_nothing_is_not_handled_before_authentication(frame: bytes) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        client.push(frame)
        await client.end()
        assert not client.connection.is_broker

    tell(story)


def test_frames_are_small_before_authentication_and_usual_after_it() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        client.push(head(ApiKey.SASL_HANDSHAKE) + bytes(FRAME_BYTES_MAX))
        await client.end()
        other = broker.stranger()
        await other.shake("SCRIPTED")
        await other.send(b"alice".ljust(FRAME_BYTES_MAX // 2))
        topic = struct.pack(">h", 30_000) + bytes(30_000) + struct.pack(">i", 0)
        other.push(head(ApiKey.LIST_OFFSETS, 1) + struct.pack(">ii", -1, 3) + 3 * topic)
        assert len(await other.raw()) > FRAME_BYTES_MAX

    tell(story)


def test_memory_before_authentication_is_small() -> None:
    async def story(broker: SaslFixture) -> None:
        client, part = broker.stranger(), broker.stranger()
        received = client.connection.received
        for _ in range(3):
            client.push_request(ApiKey.API_VERSIONS, 0)
        assert received.held_bytes <= 16 << 10
        part._channel.push([struct.pack(">i", FRAME_BYTES_MAX) + head(ApiKey.SASL_HANDSHAKE) + bytes(50_000)])
        assert part.connection.received.held_bytes <= FRAME_BYTES_MAX + 4

    tell(story)


def test_an_unknown_mechanism_keeps_the_connection_and_lists_what_there_is() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        for name in ("GSSAPI", "plain", ""):
            shaken = await client.shake(name)
            assert shaken.error_code is ErrorCode.unsupported_sasl_mechanism
            assert shaken.mechanisms == (*ALL, "SCRIPTED")
        assert (await client.log_in()).error_code is ErrorCode.none

    tell(story)


def test_a_failure_is_answered_after_a_delay_and_closes() -> None:
    async def story(broker: SaslFixture) -> None:
        loop = asyncio.get_running_loop()
        for name, password in (("alice", "wrong"), ("alice", "geheim"), ("nobody", "secret")):
            client, began = broker.stranger(), loop.time()
            await client.shake("PLAIN")
            answer = await client.send(f"\0{name}\0{password}".encode())
            assert loop.time() - began >= DELAY_S
            assert (answer.error_code, answer.error_message) == (ErrorCode.sasl_authentication_failed, INVALID)
            await client.end()
            assert client.connection.identity.principal == ANONYMOUS

    tell(story)


def test_a_failure_without_headers_closes_without_an_answer() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("PLAIN", version=0)
        client.push(b"\0alice\0wrong")
        await client.end()
        assert not client.has_answers

    tell(story)


def test_what_is_sent_together_with_a_failure_is_not_handled() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("PLAIN")
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        assert (await client.response()).error_code is ErrorCode.sasl_authentication_failed
        await client.end()
        assert not client.has_answers

    tell(story)


def test_what_is_sent_together_with_a_password_is_handled_after_it() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        client.push_request(ApiKey.API_VERSIONS, 0)
        client.push_request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        codes = [(await client.response()).error_code for _ in range(3)]
        assert codes == [ErrorCode.none] * 3
        assert (await client.response()).topics == ()

    tell(story)


def test_a_bug_of_a_mechanism_closes_the_connection() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("SCRIPTED")
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"broken")
        await client.end()
        assert not client.has_answers

    tell(story)


def test_a_client_that_never_authenticates_is_closed_after_some_requests() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        for _ in range(FRAMES_MAX):
            await client.shake("GSSAPI")
        client.push_request(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        await client.end()

    tell(story)


@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_a_client_that_leaves_during_an_exchange_is_forgotten(password: str) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("PLAIN")
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0alice\0{password}".encode())
        client.connection.close()
        await client.end()
        await asyncio.sleep(1)
        assert client.connection.identity.principal == ANONYMOUS

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


def test_a_broker_beyond_the_connection_limit_authenticates_first() -> None:
    async def story(broker: SaslFixture) -> None:
        follower, crowd = broker.stranger(), broker.stranger()
        for client in (follower, crowd):
            client.connection.admit_broker("max.connections is 1")
            assert (await client.log_in()).error_code is ErrorCode.none
        crowd.push(head(ApiKey.METADATA))
        await crowd.end()
        follower.push(bytes((FIRST_KEY_BYTE,)))
        await follower.end()

    tell(story)


def test_without_a_lifetime_a_client_cannot_authenticate_again() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        assert (await client.log_in()).session_lifetime.total_seconds() == 0
        assert (await client.shake("PLAIN")).error_code is ErrorCode.illegal_sasl_state
        assert (await client.send(b"\0bob\0geheim")).error_code is ErrorCode.illegal_sasl_state
        assert client.connection.identity.principal == ALICE
        assert await is_served(client)

    tell(story)


def test_a_listener_without_sasl_answers_illegal_state() -> None:
    async def story(broker: SaslFixture) -> None:
        assert (await broker.ask(17, 1, mechanism="PLAIN")).error_code is ErrorCode.illegal_sasl_state
        assert (await broker.ask(36, 2, auth_bytes=b"\0alice\0secret")).error_code is ErrorCode.illegal_sasl_state

    tell(story)


def test_an_expired_session_ends_with_the_next_request() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        assert (await client.log_in()).session_lifetime.total_seconds() == LIFETIME_MS / 1000
        await asyncio.sleep(LIFETIME_MS / 1000 - 1)
        assert await is_served(client)
        await asyncio.sleep(2)
        assert client.is_open
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        await client.end()
        assert not client.has_answers

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


@pytest.mark.parametrize("after_s", [5, LIFETIME_MS / 1000 + 1])
def test_a_client_authenticates_again_before_and_after_the_end_of_its_session(after_s: float) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.log_in()
        for _ in range(3):
            await asyncio.sleep(after_s)
            assert (await client.log_in()).session_lifetime.total_seconds() == LIFETIME_MS / 1000
            assert await is_served(client)

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


def test_a_broker_that_authenticates_again_still_acts_for_its_user() -> None:
    user = Identity(Principal("User", "bob"), "10.0.0.8", "PASSWORD")

    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.log_in()
        client._channel.push([encode_on_behalf(user)])
        assert await is_served(client)
        assert client.connection.identity == user
        for _ in range(2):
            await asyncio.sleep(LIFETIME_MS / 1000 - 1)
            assert (await client.log_in()).error_code is ErrorCode.none
            assert client.connection.identity == user
        assert await is_served(client)

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


def test_requests_are_served_while_a_client_authenticates_again() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.log_in()
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        client.push_request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        answers = [type(await client.response()).__name__ for _ in range(5)]
        assert [name.removesuffix("Response") for name in answers] == [
            "ListOffsets",
            "SaslHandshake",
            "ListOffsets",
            "SaslAuthenticate",
            "ListOffsets",
        ]

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


@pytest.mark.parametrize(
    ("mechanism", "message", "said"),
    [
        ("PLAIN", b"\0bob\0geheim", "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("PLAIN", b"\0alice\0wrong", INVALID),
        ("SCRIPTED", b"alice", "'SCRIPTED' requested by client is not supported for re-authentication of mechanism"),
    ],
)
def test_no_other_principal_can_take_over_a_connection(mechanism: str, message: bytes, said: str) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.log_in()
        await client.shake(mechanism)
        client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        answer = await client.response()
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert said in answer.error_message
        assert client.connection.identity.principal == ALICE
        await client.end()
        assert not client.has_answers

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


def test_a_client_authenticates_again_at_most_once_a_second_and_with_headers() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.log_in()
        assert (await client.shake("PLAIN", version=0)).error_code is ErrorCode.illegal_sasl_state
        await client.log_in()
        assert (await client.shake("PLAIN")).error_code is ErrorCode.illegal_sasl_state
        await asyncio.sleep(1)
        assert (await client.log_in()).error_code is ErrorCode.none

    tell(story, connections_max_reauth_ms=LIFETIME_MS)


@pytest.mark.parametrize(("limit_ms", "lifetime_ms"), [(0, 5000), (2000, 2000), (9000, 5000)])
def test_a_session_ends_with_its_credential(limit_ms: int, lifetime_ms: int) -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("SCRIPTED")
        answer = await client.send(f"alice {broker.now_ms + 5000}".encode())
        assert answer.session_lifetime.total_seconds() == lifetime_ms / 1000
        await asyncio.sleep(lifetime_ms / 1000 + 1)
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        await client.end()

    tell(story, connections_max_reauth_ms=limit_ms)


def test_an_expired_credential_gives_no_session() -> None:
    async def story(broker: SaslFixture) -> None:
        client = broker.stranger()
        await client.shake("SCRIPTED")
        await client.send(f"alice {broker.now_ms - 1}".encode())
        await asyncio.sleep(0.1)
        client.push_request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=())
        await client.end()

    tell(story)


def test_clients_that_authenticate_together_share_iterations_of_the_loop() -> None:
    """A slice has 128 steps: the others wait for later iterations, one for each."""

    async def story(broker: SaslFixture) -> None:
        clients = [broker.stranger() for _ in range(300)]
        for client in clients:
            await client.shake("SCRIPTED")
        for client in clients:
            client.push_request(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"alice")
        iterations = 0
        while not all(client.has_answers for client in clients):
            await asyncio.sleep(0)
            iterations += 1
        assert 100 < iterations < 1000

    tell(story)


def test_a_listener_closes_what_does_not_authenticate_in_time() -> None:
    async def story(broker: SaslFixture) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("127.0.0.1", await broker.listen())
        began = loop.time()
        while loop.time() < began + AUTHENTICATION_S_MAX - 1:
            frame = head(ApiKey.API_VERSIONS)
            writer.write(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert await reader.readexactly(size)
            await asyncio.sleep(5)
        assert await reader.read() == b""
        assert loop.time() < began + 2 * AUTHENTICATION_S_MAX
        writer.close()
        await broker.server.close()

    tell(story)


def test_a_listener_keeps_what_has_authenticated() -> None:
    async def story(broker: SaslFixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", await broker.listen())
        for frame in (head(ApiKey.SASL_HANDSHAKE, 0) + struct.pack(">h", 5) + b"PLAIN", b"\0alice\0secret"):
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * AUTHENTICATION_S_MAX):
                await reader.read()
        writer.close()
        await broker.server.close()

    tell(story)


def test_a_failure_reaches_the_client_before_the_connection_ends() -> None:
    async def story(broker: SaslFixture) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", await broker.listen())
        for frame in (
            head(ApiKey.SASL_HANDSHAKE, 1) + struct.pack(">h", 5) + b"PLAIN",
            head(ApiKey.SASL_AUTHENTICATE, 0) + struct.pack(">i", 12) + b"\0alice\0wrong",
        ):
            writer.write(len(frame).to_bytes(4, "big") + frame)
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert answer[4:6] == struct.pack(">h", ErrorCode.sasl_authentication_failed)
        assert INVALID.encode() in answer
        assert await reader.read() == b""
        writer.close()
        await broker.server.close()

    tell(story)
