"""TLS between the brokers of a quorum: who is admitted, who is refused, and the change to it without a stop."""

import asyncio
import random
import ssl
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from loopback_quorum import VOTERS, Loopback

from cordwood.cluster.metadata.commands import BrokerId
from cordwood.cluster.metadata.packed import unpack
from cordwood.cluster.metadata.quorum import QuorumTls
from cordwood.cluster.metadata.raft.handshake import Handshake, Membership, PeerRole, new_nonce
from cordwood.cluster.metadata.raft.tls import CertificateRefused, RaftTlsFailed, TlsStream

HOST = "127.0.0.1"
BROKER = "broker"
HELLO = 1
"""The kind of a voter's first frame to a peer that it accepts."""


class Authority:
    """A certificate authority, and contexts of its certificates."""

    def __init__(self) -> None:
        self.ca = trustme.CA()

    def issue(self, name: str, host: str = HOST) -> trustme.LeafCert:
        return self.ca.issue_cert(host, common_name=name)

    def client(self, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        self.ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def server(self, certificate: trustme.LeafCert) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_REQUIRED
        self.ca.configure_trust(context)
        certificate.configure_cert(context)
        return context

    def tls(self, name: str = BROKER, *, allows_plaintext: bool = False) -> QuorumTls:
        certificate = self.issue(name)
        return QuorumTls(lambda: self.client(certificate), lambda: self.server(certificate), why_not, allows_plaintext)


def why_not(certificate: bytes) -> str | None:
    subject = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
    return None if f"CN={BROKER}" in subject.split(",") else f"{subject} is not a broker"


OURS, THEIRS = Authority(), Authority()


def meet(dialler: TlsStream, dialled: TlsStream) -> None:
    """Run both handshakes to their end."""
    dialler.begin()
    while data := dialler.take_unsent():
        try:
            dialled.receive(data)
        finally:
            answer = dialled.take_unsent()
            assert dialler.receive(answer) == b""


def test_both_ends_are_authenticated_and_bytes_arrive() -> None:
    dialler, dialled = TlsStream(OURS.tls(), HOST), TlsStream(OURS.tls(), None)
    meet(dialler, dialled)
    assert dialler.is_ready
    assert dialled.is_ready
    message = b"x" * 200_000
    assert message not in (sent := dialler.encrypt(message))
    assert dialled.receive(sent[:100_000]) + dialled.receive(sent[100_000:]) == message


@pytest.mark.parametrize(
    ("dialler", "dialled"),
    [
        pytest.param(THEIRS.tls(), OURS.tls(), id="of another authority"),
        pytest.param(
            QuorumTls(lambda: OURS.client(None), OURS.tls().server, why_not), OURS.tls(), id="without a certificate"
        ),
    ],
)
def test_a_certificate_that_proves_nothing(dialler: QuorumTls, dialled: QuorumTls) -> None:
    with pytest.raises(RaftTlsFailed):
        meet(TlsStream(dialler, HOST), TlsStream(dialled, None))


def test_the_dialled_host_has_to_be_in_the_certificate() -> None:
    with pytest.raises(RaftTlsFailed, match="mismatch"):
        meet(TlsStream(OURS.tls(), "127.0.0.2"), TlsStream(OURS.tls(), None))


@pytest.mark.parametrize("names", [("client", BROKER), (BROKER, "client")], ids=["dialler", "dialled"])
def test_a_client_is_not_a_broker(names: tuple[str, str]) -> None:
    dialler, dialled = map(OURS.tls, names)
    with pytest.raises(CertificateRefused, match=r"CN=client.* is not a broker"):
        meet(TlsStream(dialler, HOST), TlsStream(dialled, None))


Story = Callable[[Loopback], Awaitable[None]]


def tell(directory: Path, story: Story) -> None:
    async def reported() -> None:
        with ThreadPoolExecutor(2) as executor:
            quorum = Loopback(directory, executor)
            try:
                await story(quorum)
                assert quorum.failures == []
            finally:
                await quorum.close()

    asyncio.run(asyncio.wait_for(reported(), 60))


async def welcome(quorum: Loopback, tls: QuorumTls | None) -> bool:
    """Introduce an observer to a voter. Return whether the voter's hello came back before the connection ended."""
    context = None if tls is None else tls.client()
    me = Membership(BrokerId(7), PeerRole.OBSERVER, "", VOTERS, b"")
    sent: list[bytes] = []
    Handshake(me, BrokerId(1), new_nonce(random.Random(1)), sent.append).begin()
    try:
        reader, writer = await asyncio.open_connection(*quorum.address(1), ssl=context)
        writer.write(struct.pack("<I", len(sent[0])) + sent[0])
        length = await reader.readexactly(4)
        kind, *_ = unpack(await reader.readexactly(int.from_bytes(length, "little")))
        writer.close()
    except (OSError, asyncio.IncompleteReadError):
        return False
    return bool(kind == HELLO)


def test_brokers_with_certificates_form_a_quorum_and_strangers_stay_outside(tmp_path: Path) -> None:
    async def story(quorum: Loopback) -> None:
        quorum.tls = {voter: OURS.tls() for voter in VOTERS}
        await quorum.start(*VOTERS)
        await quorum.formed()
        for tls in (None, THEIRS.tls(), OURS.tls("client")):
            assert not await welcome(quorum, tls)
        assert await welcome(quorum, OURS.tls())
        quorum.tls[7] = OURS.tls()
        observer = await quorum.observe()
        await quorum.put(1, "a")
        await quorum.until(lambda: "a" in observer.image.configs_of_all_brokers)

    tell(tmp_path, story)


def test_voters_change_to_tls_one_by_one(tmp_path: Path) -> None:
    async def story(quorum: Loopback) -> None:
        async def restart(voter: int, tls: QuorumTls) -> None:
            await quorum.stop(voter)
            quorum.tls[voter] = tls
            await quorum.start(voter)
            await quorum.formed()
            await quorum.put(voter, f"{voter} {tls.allows_plaintext}")

        await quorum.start(*VOTERS)
        await quorum.formed()
        for voter in VOTERS:
            await restart(voter, OURS.tls(allows_plaintext=True))
        for voter in VOTERS:
            await restart(voter, OURS.tls())
        assert len(quorum.keys(1)) == 2 * len(VOTERS)
        assert not await welcome(quorum, None)

    tell(tmp_path, story)
