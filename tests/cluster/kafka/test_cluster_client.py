"""Requests to other brokers over one connection: responses in order, and a bounded wait."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest

from cordwood.cluster.kafka.client_connection import AT_ONCE_BYTES_MAX, ClientConnection, EncodedResponse, HungUp
from cordwood.cluster.kafka.cluster_client import IDENTITIES_MAX, ClusterClient, Unanswered
from cordwood.cluster.kafka.on_behalf import decode_on_behalf, is_on_behalf
from cordwood.cluster.kafka.wire import Malformed
from cordwood.cluster.resources.turns import Turns
from cordwood.cluster.security.principal import Identity, Principal
from cordwood.replication.channel import Channel, Chunk
from cordwood.storage.steps import at_once

ME, OTHER = 1, 2
ROWS = range(100, 3000)


class OtherEnd:
    """A connection whose other end is the test: records requests and sends any responses."""

    def __init__(self) -> None:
        self.on_closed: Callable[[], None] | None = None
        self.is_open = True
        self.asked: list[int] = []
        self.introduced: list[Identity] = []
        self.received: Callable[[memoryview], None] = lambda _: None

    def push(self, chunks: list[Chunk]) -> None:
        (frame,) = chunks
        assert isinstance(frame, bytes)
        if is_on_behalf(memoryview(frame)[4:]):
            self.introduced.append(decode_on_behalf(memoryview(frame)[4:]))
            return
        self.asked.append(int.from_bytes(frame[8:12], "big"))

    def close(self, reason: str | None = None) -> None:  # noqa: ARG002
        if self.is_open:
            self.is_open = False
            assert self.on_closed is not None
            self.on_closed()

    def answer(self, correlation_id: int, code: int = 0) -> None:
        """Send the response to a Heartbeat: its throttle time and error code."""
        self.received(memoryview(struct.pack(">iih", correlation_id, 0, code)))


class AnsweringEnd(OtherEnd):
    """A connection whose other end answers each Heartbeat at once."""

    def push(self, chunks: list[Chunk]) -> None:
        asked = len(self.asked)
        super().push([b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))])
        for number in self.asked[asked:]:
            self.answer(number)


def connection() -> tuple[ClientConnection, OtherEnd]:
    end, talk = OtherEnd(), ClientConnection("client")
    talk.begin(end)
    end.received = talk.received
    return talk, end


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def ask(talk: ClientConnection) -> "asyncio.Future[Any]":
    return talk.ask(HEARTBEAT)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def test_answers_belong_to_questions_in_their_order() -> None:
    async def story() -> None:
        talk, end = connection()
        first, second = ask(talk), ask(talk)
        for number, code in zip(end.asked, (ErrorCode.none, ErrorCode.unknown_member_id), strict=True):
            end.answer(number, code)
        assert [(await each).error_code for each in (first, second)] == [ErrorCode.none, ErrorCode.unknown_member_id]
        assert talk.is_idle

    run(story())


@pytest.mark.parametrize("answer", [b"\x00", b"\x00\x00\x00\x63", b"\x00\x00\x00\x01"])
def test_an_answer_to_another_question_ends_the_conversation(answer: bytes) -> None:
    async def story() -> None:
        talk, end = connection()
        question = ask(talk)
        talk.received(memoryview(answer))
        with pytest.raises(HungUp):
            await question
        assert not end.is_open
        with pytest.raises(HungUp):
            await ask(talk)

    run(story())


def test_a_waiter_gets_an_error_when_the_broker_hangs_up() -> None:
    async def story() -> None:
        talk, end = connection()
        question = ask(talk)
        end.close()
        with pytest.raises(HungUp):
            await question

    run(story())


def cluster(dialled: Callable[[], Channel] | OSError, *, has_acls: bool = False) -> ClusterClient:
    """Return the client of the first of two brokers; `dialled` is the connection to the second."""

    async def dial(_host: str, _port: int, received: Callable[[memoryview], None]) -> Channel:
        if isinstance(dialled, OSError):
            raise dialled
        end = dialled()
        if isinstance(end, OtherEnd):
            end.received = received
        return end

    def nobody(_received: Callable[[memoryview], None], _identity: Identity) -> Channel:
        raise AssertionError("this broker is not asked")

    return ClusterClient(
        ME,
        nobody,
        {OTHER: ("127.0.0.1", 1)}.get,
        dial,
        Turns(asyncio.get_running_loop().time),
        "client",
        has_acls=has_acls,
    )


def test_a_broker_that_cannot_be_asked_is_named() -> None:
    async def story() -> None:
        with pytest.raises(Unanswered, match=r"Broker 3 is not known"):
            await cluster(OtherEnd).open(3)
        with pytest.raises(Unanswered, match=r"Broker 2 cannot be reached .*refused"):
            await cluster(ConnectionRefusedError(111, "Connection refused")).open(OTHER)

    run(story())


def user(number: int) -> Identity:
    return Identity(Principal("User", f"user {number}"), "10.0.0.1")


class Dialled:
    """The connections to the other broker, in the order in which they were opened."""

    def __init__(self) -> None:
        self.ends: list[AnsweringEnd] = []

    def __call__(self) -> Channel:
        self.ends.append(AnsweringEnd())
        return self.ends[-1]


def test_each_user_has_connections_of_its_own() -> None:
    async def story() -> None:
        dialled = Dialled()
        client = cluster(dialled)
        for asking in (client, client.on_behalf_of(user(1)), client, client.on_behalf_of(user(2))):
            await asking.ask(OTHER, HEARTBEAT)
        await client.on_behalf_of(user(1)).apart(1).ask(OTHER, HEARTBEAT)
        await client.on_behalf_of(user(1)).ask(OTHER, HEARTBEAT)
        assert [end.introduced for end in dialled.ends] == [[], [user(1)], [user(2)], [user(1)]]
        assert [len(end.asked) for end in dialled.ends] == [2, 2, 1, 1]

    run(story())


def test_few_users_keep_idle_connections() -> None:
    async def story() -> None:
        dialled = Dialled()
        client = cluster(dialled)
        for number in range(IDENTITIES_MAX + 3):
            await client.on_behalf_of(user(number)).ask(OTHER, HEARTBEAT)
        assert [end.is_open for end in dialled.ends] == [False] * 3 + [True] * IDENTITIES_MAX
        await client.close()
        assert not any(end.is_open for end in dialled.ends)

    run(story())


@pytest.mark.parametrize("has_acls", [False, True])
def test_anonymous_users_are_named_only_where_access_is_controlled(*, has_acls: bool) -> None:
    async def story() -> None:
        dialled = Dialled()
        nobody = Identity(host="10.0.0.1")
        await cluster(dialled, has_acls=has_acls).on_behalf_of(nobody).ask(OTHER, HEARTBEAT)
        assert dialled.ends[0].introduced == ([nobody] if has_acls else [])

    run(story())


@pytest.mark.parametrize("cut", [0, 5], ids=["whole", "cut off"])
def test_a_long_list_is_decoded_in_steps(cut: int) -> None:
    async def story() -> None:
        talk, end = connection()
        question = talk.ask(ListTransactionsRequest())
        rows = b"".join(b"\x0cpayment%04d" % number + struct.pack(">q", number) + b"\x08Ongoing\x00" for number in ROWS)
        # Correlation id and tags; throttle time, error code, no unknown states, and the number of rows as a varint.
        head = struct.pack(">ibihb", end.asked[0], 0, 0, 0, 1) + varint(len(ROWS) + 1)
        whole = head + rows + b"\x00"
        assert len(whole) > AT_ONCE_BYTES_MAX
        talk.received(memoryview(whole[: len(whole) - cut]))
        answer = await question
        assert isinstance(answer, EncodedResponse)
        steps = answer.decoding()
        if cut:
            with pytest.raises(Malformed):
                at_once(steps)
        else:
            for _ in range(100):
                next(steps)
            states = at_once(steps).transaction_states
            assert [row.producer_id for row in states] == list(ROWS)
            assert {row.transaction_state for row in states} == {"Ongoing"}

    run(story())


def varint(number: int) -> bytes:
    return bytes((number & 0x7F | 0x80, number >> 7)) if number >> 7 else bytes((number,))
