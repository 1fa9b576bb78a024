"""Voters of the metadata quorum: their addresses, the shared secret, and this broker's own metadata address."""

import ipaddress
import re
from collections.abc import Mapping

from cordwood.cluster.config.listeners import (
    ListenerMistake,
    controller_listener,
    controller_name,
    is_tls,
    protocol_of,
)
from cordwood.cluster.config.settings import Settings
from cordwood.cluster.metadata.commands import BrokerId

SIZES = (1, 3, 5)

_VOTER = re.compile(r"(?P<id>[0-9]{1,9})@(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:@\[\]]+)):(?P<port>[0-9]{1,5})")

_SERVER = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:@\[\]]+)):(?P<port>[0-9]{1,5})")

Address = tuple[str, int]


class VoterMistake(Exception):
    """An invalid quorum configuration: a sentence that says what to do."""


def voters_of(settings: Settings) -> Mapping[BrokerId, Address]:
    """Return host and port of every voter by its id; empty for a cluster of one broker. Raises VoterMistake."""
    voters: dict[BrokerId, Address] = {}
    for text in settings.controller_quorum_voters:
        match = _VOTER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise VoterMistake(f"controller.quorum.voters has {text!r}: write it as ID@HOST:PORT.")
        broker_id = BrokerId(int(match["id"]))
        if broker_id in voters:
            raise VoterMistake(f"controller.quorum.voters has broker {broker_id} twice: name each voter once.")
        voters[broker_id] = (match["v6"] or match["host"], int(match["port"]))
    if voters and len(voters) not in SIZES:
        raise VoterMistake(
            f"controller.quorum.voters has {len(voters)} voters: name 1, 3 or 5. Further brokers join as observers."
        )
    return voters


def bootstrap_of(settings: Settings) -> tuple[Address, ...]:
    """Return the addresses at which a broker looks for the voters. Raises VoterMistake."""
    found = []
    for text in settings.controller_quorum_bootstrap_servers:
        match = _SERVER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise VoterMistake(f"controller.quorum.bootstrap.servers has {text!r}: write it as HOST:PORT.")
        found.append((match["v6"] or match["host"], int(match["port"])))
    return tuple(found)


def check_secret(settings: Settings) -> None:
    """Raise VoterMistake if other machines can reach the quorum's ports, and neither secret nor certificate is asked.

    Raises ListenerMistake for a malformed listener.security.protocol.map.
    """
    hosts = [host for host, _ in (*voters_of(settings).values(), *bootstrap_of(settings))]
    if not hosts:
        return
    protocol = protocol_of(settings, controller_name(settings))
    if protocol.startswith("SASL_"):
        raise VoterMistake(
            f"The controller listener {controller_name(settings)} is {protocol}, but users are in the metadata that it"
            " carries: use SSL, with certificates for brokers, or PLAINTEXT, and controller.quorum.secret with either."
        )
    is_proved = is_tls(protocol) and not settings.controller_quorum_plaintext_allowed
    if settings.controller_quorum_secret or is_proved:
        return
    listener = controller_listener(settings)
    if not all(map(_is_loopback, hosts if listener is None else [*hosts, listener[0]])):
        raise VoterMistake(
            "controller.quorum.secret is empty, and other machines can reach the metadata quorum and could"
            " change the metadata. Set the same long random text on all brokers of the cluster, or use SSL for the"
            " controller listener."
        )


def metadata_address(settings: Settings) -> Address | None:
    """Return the address where this broker listens as a voter, or as one that may become a voter; None for others.

    Raises VoterMistake.
    """
    try:
        listener = controller_listener(settings)
    except ListenerMistake as mistake:
        raise VoterMistake(str(mistake)) from None
    return voters_of(settings).get(BrokerId(settings.node_id)) if listener is None else listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
