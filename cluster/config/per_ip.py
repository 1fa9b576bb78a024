"""The limits of connections by address: max.connections.per.ip.overrides."""

from collections.abc import Mapping

from cordwood.cluster.config.settings import Settings


class PerIpMistake(Exception):
    """A row of max.connections.per.ip.overrides that names no limit. The message is for the operator."""


def per_ip_overrides(settings: Settings) -> Mapping[str, int]:
    """Return the limits by address. An IPv6 address may be in brackets. Raises PerIpMistake."""
    limits = {}
    for row in settings.max_connections_per_ip_overrides:
        address, _, number = row.rpartition(":")
        if not (address and number.isascii() and number.isdigit()):
            raise PerIpMistake(f"max.connections.per.ip.overrides has {row!r}: write ADDRESS:NUMBER, as 10.0.0.7:200.")
        limits[address.removeprefix("[").removesuffix("]")] = int(number)
    return limits
