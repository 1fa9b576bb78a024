"""Listeners: bind addresses and advertised addresses of the broker."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cordwood.cluster.config.settings import LISTENER_PREFIX, SECURITY_PROTOCOLS, Settings, override_key
from cordwood.cluster.metadata.commands import Endpoint

REQUIRED = "required"
"""The value of settings that require authentication."""
HTTP = "HTTP"
"""The name of the HTTP listener in keys such as listener.name.http.ssl.keystore.location."""
_ADDRESS = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]{1,5})"
)
_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/@\[\]]+)):(?P<port>[0-9]{1,5})")
_ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})
_ONLY_HERE = ("127.", "localhost", "::1")


class ListenerMistake(Exception):
    """Invalid listeners: a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on. `host` "" means all interfaces; port 0 means a free port, known once bound."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def is_tls(self) -> bool:
        return is_tls(self.protocol)

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    def bound(self, port: int) -> "Listener":
        """Return this listener with its bound port, which is advertised too if no other port is."""
        return replace(self, port=port, advertised_port=self.advertised_port or port)

    @property
    def endpoint(self) -> Endpoint:
        """The advertised endpoint: registered in the metadata, and returned to clients."""
        return Endpoint(self.name, self.advertised_host, self.advertised_port)

    def bound_address(self) -> str:
        """Return the address that the listener is bound to."""
        return _address(self.host or "all interfaces", self.port)

    def advertised_address(self) -> str:
        """Return the address that clients get in Metadata."""
        return _address(self.advertised_host, self.advertised_port)

    def warning(self) -> str | None:
        """Return a sentence where other machines' clients would be led to themselves; None elsewhere."""
        if self.host in _ALL_INTERFACES and self.advertised_host.startswith(_ONLY_HERE):
            return (
                "Only clients on this machine can connect: to allow others, set advertised.listeners to an address that"
                " they can reach."
            )
        return None


def is_tls(protocol: str) -> bool:
    """Return whether connections of the security protocol are encrypted."""
    return protocol.endswith("SSL")


def protocol_of(settings: Settings, listener: str) -> str:
    """Return the security protocol of a listener, by its name in upper case. Raises ListenerMistake."""
    return _protocols(settings.listener_security_protocol_map).get(listener, SECURITY_PROTOCOLS[0])


def controller_name(settings: Settings) -> str:
    """Return the name of the controller listener, in upper case."""
    return next(iter(settings.controller_listener_names), "CONTROLLER").upper()


def check_overrides(settings: Settings) -> None:
    """Raise ListenerMistake if a key is for a listener that does not exist."""
    if not settings.listener_overrides:
        return
    names = [name for name, _, _ in _parsed("listeners", settings.listeners)]
    names += [*settings.controller_listener_names, HTTP]
    known = tuple(override_key(f"{LISTENER_PREFIX}{name}.") for name in names)
    for key in settings.listener_overrides:
        if not key.startswith(known):
            raise ListenerMistake(f"{key} is for a listener that is not in listeners: add it there, or remove the key.")


def listeners_of(settings: Settings, hostname: str = "localhost") -> tuple[Listener, ...]:
    """Return the listeners for clients and brokers from the settings. Raises ListenerMistake.

    A listener that is not in `advertised.listeners` advertises its bind address; for an empty host ("NAME://:9092") it
    advertises `hostname`, as Kafka does.
    """
    protocols = _protocols(settings.listener_security_protocol_map)
    bound = _parsed("listeners", settings.listeners)
    if all(name in {name.upper() for name in settings.controller_listener_names} for name, _, _ in bound):
        raise ListenerMistake("listeners is empty: give at least one, such as PLAINTEXT://127.0.0.1:9092.")
    advertised = {
        name: (host, port) for name, host, port in _parsed("advertised.listeners", settings.advertised_listeners)
    }
    for name in advertised.keys() - {name for name, _, _ in bound}:
        raise ListenerMistake(
            f"advertised.listeners names {name}, which is not in listeners: add it there, or remove it."
        )
    controllers = {name.upper() for name in settings.controller_listener_names}
    return tuple(
        _listener(*address, protocols, advertised, hostname) for address in bound if address[0] not in controllers
    )


def controller_listener(settings: Settings) -> tuple[str, int] | None:
    """Return host ("" for all) and port of the controller listener in `listeners`; None without one.

    Raises ListenerMistake.
    """
    controllers = {name.upper() for name in settings.controller_listener_names}
    for name, host, port in _parsed("listeners", settings.listeners):
        if name in controllers:
            return "" if host in _ALL_INTERFACES else host, port
    return None


def http_address(settings: Settings) -> tuple[str, int] | None:
    """Return host and port of the HTTP server; None without one. Raises ListenerMistake."""
    if not settings.http_listen:
        return None
    match = _HOST_AND_PORT.fullmatch(settings.http_listen)
    if match is None or int(match["port"]) > 65535:
        raise ListenerMistake(
            f"http.listen is {settings.http_listen!r}: write it as HOST:PORT, such as 127.0.0.1:8080."
        )
    return match["v6"] or match["host"], int(match["port"])


def http_requires_login(settings: Settings) -> bool:
    """Return whether each request over HTTP has to prove who sends it. Raises ListenerMistake.

    With `auto` it does as soon as one listener authenticates its clients: a cluster whose other doors are locked has no
    open one.
    """
    if settings.http_authentication != "auto":
        return settings.http_authentication == REQUIRED
    return settings.http_ssl_client_auth == REQUIRED or any(
        listener.protocol.startswith("SASL_")
        or (listener.protocol == "SSL" and settings.listener_value(listener.name, "ssl.client.auth") == REQUIRED)
        for listener in listeners_of(settings)
    )


def http_names(settings: Settings, hostname: str) -> frozenset[str]:
    """Return the host names, in lower case, that HTTP clients may use for this broker. Raises ListenerMistake."""
    advertised = [listener.advertised_host for listener in listeners_of(settings, hostname)]
    return frozenset(name.lower() for name in (hostname, *advertised, *settings.http_allowed_hosts))


def inter_broker_listener(settings: Settings) -> str:
    """Return the name of the listener between brokers. Raises ListenerMistake."""
    names = [listener.name for listener in listeners_of(settings)]
    wanted = settings.inter_broker_listener_name
    if wanted is None:
        return names[0]
    if wanted.upper() not in names:
        raise ListenerMistake(
            f"inter.broker.listener.name is {wanted}, which is not in listeners: add it there, or name a"
            " listener from that list."
        )
    return wanted.upper()


def advertised_text(endpoints: Iterable[Endpoint]) -> str:
    """Return advertised endpoints in the format of `advertised.listeners`."""
    return ",".join(f"{at.listener}://{_address(at.host, at.port)}" for at in endpoints)


def _listener(
    name: str, host: str, port: int, protocols: dict[str, str], advertised: dict[str, tuple[str, int]], hostname: str
) -> Listener:
    if name not in protocols:
        raise ListenerMistake(
            f"Listener {name} has no protocol: add {name}:PROTOCOL to listener.security.protocol.map."
        )
    given_host, given_port = advertised.get(name, (host or hostname, port))
    if given_host in _ALL_INTERFACES:
        raise ListenerMistake(
            f"Listener {name} cannot advertise {given_host or 'no host'} to clients: set advertised.listeners to"
            f" {name}://HOST:{given_port or port}, with a host that clients can reach."
        )
    return Listener(name, protocols[name], "" if host in _ALL_INTERFACES else host, port, given_host, given_port)


def _parsed(key: str, addresses: Sequence[str]) -> list[tuple[str, str, int]]:
    parsed = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match["port"]) > 65535:
            raise ListenerMistake(
                f"{key} has {address!r}: write it as NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092."
            )
        parsed.append(
            (match["name"].upper(), match["v6"] if match["host"] is None else match["host"], int(match["port"]))
        )
    for at, (name, _, port) in enumerate(parsed):
        if any(name == other for other, _, _ in parsed[:at]):
            raise ListenerMistake(f"{key} has two listeners named {name}: give each a different name.")
        if key == "listeners" and port and any((parsed[at][1], port) == other[1:] for other in parsed[:at]):
            raise ListenerMistake(
                f"{key} has two listeners on port {port} of the same host: give each a different port."
            )
    return parsed


def _protocols(rows: Sequence[str]) -> dict[str, str]:
    protocols = {}
    for row in rows:
        name, separator, protocol = row.partition(":")
        if not separator or not name:
            raise ListenerMistake(f"listener.security.protocol.map has {row!r}: write it as NAME:PROTOCOL.")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ListenerMistake(
                f"listener.security.protocol.map gives {name} the protocol {protocol}: use one of"
                f" {', '.join(SECURITY_PROTOCOLS)}."
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
