"""The limits that quotas set: their keys, the entities that may have them, and Kafka's precedence (KIP-55, KIP-546)."""

from collections.abc import Mapping
from typing import NamedTuple

from cordwood.cluster.metadata.client_quotas import Entity

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The limits of users and client ids."""
IP_KEYS = (CONNECTION_CREATION_RATE,)
"""The limits of addresses."""
INTEGRAL = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
"""Limits that are whole numbers."""

Quotas = Mapping[Entity, Mapping[str, float]]


class LimitedClients(NamedTuple):
    """The clients that share one limit: a user, a client id, or both; None for any."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """The rate that all clients of a group may have together."""

    rate: float
    group: LimitedClients


def client_limit(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Return the limit of a client, by the most specific entity that sets `key`; None if none does.

    As in Kafka, a quota of a user alone is shared by all its client ids, and one of a client id alone by all users. A
    default stands for each user and each client id on its own.
    """
    both, of_user, of_client = (
        LimitedClients(user, client_id),
        LimitedClients(user, None),
        LimitedClients(None, client_id),
    )
    by_precedence: tuple[tuple[Entity, LimitedClients], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    )
    for entity, group in by_precedence:
        rate = quotas.get(entity, {}).get(key)
        if rate is not None:
            return Limit(rate, group)
    return None


def address_limit(quotas: Quotas, key: str, address: str) -> Limit | None:
    """Return the limit of an address: its own, or the default of all addresses; None without one."""
    for name in (address, None):
        rate = quotas.get(((IP, name),), {}).get(key)
        if rate is not None:
            return Limit(rate, LimitedClients(address, None))
    return None
