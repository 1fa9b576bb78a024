"""Attempts on TLS itself: changed records in a handshake and after it, and certificates of a CA that is not trusted."""

import random
import ssl

from cordwood.chaos.live.intruders.changes import changed_bytes
from cordwood.chaos.live.intruders.connection import BrokerClosed, IntruderConnection
from cordwood.chaos.live.intruders.stage import BROKERS, CLIENTS, HOST, ClosedTarget
from cordwood.chaos.live.wild_requests import wild_request
from cordwood.client.codec import LENGTH_BYTES

HTTP = "HTTP"
FLIGHTS_MAX = 6
RECORD_TYPES = (20, 21, 22, 23, 24, 0, 128)
METADATA = (3, 9)


class TlsAttempt:
    """One connection, whose TLS records pass through the intruder's hands."""

    def __init__(self, rng: random.Random, target: ClosedTarget, context: ssl.SSLContext) -> None:
        self._rng, self._target = rng, target
        self._listener = rng.choice((CLIENTS, BROKERS, HTTP))
        self._context = context
        if self._listener == BROKERS and rng.random() < 0.5:
            self._context = ssl.create_default_context(cafile=target.ca_file)
            self._context.load_cert_chain(target.own_pair)
        if rng.random() < 0.4:
            self._context = _only(ssl.TLSVersion.TLSv1_2, target, self._listener == BROKERS)
        self.outcome = ""

    def run(self) -> list[str]:
        """Return a sentence for each intrusion. Raises OSError if the broker takes no connections."""
        rng = self._rng
        port = self._target.http_port if self._listener == HTTP else self._target.ports[self._listener]
        damaged_at = rng.randrange(-1, FLIGHTS_MAX)
        plain = b""
        state = "handshake"
        with IntruderConnection(rng, port) as connection:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = self._context.wrap_bio(incoming, outgoing, server_hostname=HOST)
            try:
                for flight in range(FLIGHTS_MAX):
                    state, plain = self._turn(tls, state, plain)
                    records = outgoing.read()
                    if records:
                        connection.send(self._changed(records) if flight == damaged_at else records)
                    if flight == damaged_at or state != "handshake":
                        self._look(connection, incoming)
                    else:
                        incoming.write(connection.receive(2.0))
            except (BrokerClosed, ssl.SSLError):
                state = f"{state}, closed"
            connection.drain()
            self.outcome = f"TLS {self._listener}: {state}, {'answered' if plain else 'no answer'}"
            if plain and self._listener == BROKERS:
                return [f"the listener of brokers responded to a client without a certificate: {plain[:60]!r}"]
            return []

    def _turn(self, tls: ssl.SSLObject, state: str, plain: bytes) -> tuple[str, bytes]:
        try:
            if state == "handshake":
                tls.do_handshake()
                state = "connected"
            request = wild_request(self._rng, *METADATA).frame
            tls.write(len(request).to_bytes(LENGTH_BYTES, "big") + request)
            while data := tls.read(1 << 16):
                plain += data
        except ssl.SSLWantReadError:
            pass
        return state, plain

    def _look(self, connection: IntruderConnection, incoming: ssl.MemoryBIO) -> None:
        data = connection.receive(0.3)
        if data:
            incoming.write(data)

    def _changed(self, records: bytes) -> bytes:
        """Change bytes, or repeat, reorder, cut or insert records."""
        rng = self._rng
        found = _records(records)
        match rng.randrange(8):
            case 0:
                rng.shuffle(found)
            case 1:
                found.insert(rng.randrange(len(found) + 1), rng.choice(found))
            case 2:
                body = rng.randbytes(rng.choice((0, 1, 2, 50, 16_384, 18_433)))
                head = bytes((rng.choice(RECORD_TYPES), 3, rng.randrange(5))) + (len(body) % 65_536).to_bytes(2, "big")
                found.insert(rng.randrange(len(found) + 1), head + body)
            case 3:
                return records[: rng.randrange(len(records))]
            case 4:
                found *= rng.choice((2, 40))
            case 5:
                at = rng.randrange(len(found))
                found[at] = found[at][:5] + changed_bytes(rng, found[at][5:])
            case 6:
                return b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04test" + records
            case _:
                return changed_bytes(rng, records)
        return b"".join(found)


def _only(version: ssl.TLSVersion, target: ClosedTarget, has_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.ca_file)
    context.minimum_version = context.maximum_version = version
    if has_certificate:
        context.load_cert_chain(target.own_pair)
    return context


def _records(stream: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(stream):
        end = at + 5 + int.from_bytes(stream[at + 3 : at + 5], "big")
        found.append(stream[at:end])
        at = end
    return found
