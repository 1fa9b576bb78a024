"""Precedence of quotas: the most specific entity wins, and says who shares the limit."""

import itertools

import pytest

from cordwood.cluster.quotas.limits import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    Limit,
    LimitedClients,
    address_limit,
    client_limit,
)

BY_PRECEDENCE = (
    ((("client-id", "app"), ("user", "ann")), LimitedClients("ann", "app")),
    ((("client-id", None), ("user", "ann")), LimitedClients("ann", "app")),
    ((("user", "ann"),), LimitedClients("ann", None)),
    ((("client-id", "app"), ("user", None)), LimitedClients("ann", "app")),
    ((("client-id", None), ("user", None)), LimitedClients("ann", "app")),
    ((("user", None),), LimitedClients("ann", None)),
    ((("client-id", "app"),), LimitedClients(None, "app")),
    ((("client-id", None),), LimitedClients(None, "app")),
)


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(range(8), 2)))
def test_the_more_specific_entity_wins(higher: int, lower: int) -> None:
    quotas = {BY_PRECEDENCE[at][0]: {PRODUCER_BYTE_RATE: float(at + 1)} for at in (lower, higher)}
    assert client_limit(quotas, PRODUCER_BYTE_RATE, "ann", "app") == Limit(higher + 1.0, BY_PRECEDENCE[higher][1])


def test_an_entity_without_the_key_leaves_it_to_the_next() -> None:
    quotas = {BY_PRECEDENCE[0][0]: {CONSUMER_BYTE_RATE: 1.0}, BY_PRECEDENCE[7][0]: {PRODUCER_BYTE_RATE: 2.0}}
    assert client_limit(quotas, PRODUCER_BYTE_RATE, "ann", "app") == Limit(2.0, LimitedClients(None, "app"))


def test_others_have_no_limit() -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: 1.0} for entity, _ in BY_PRECEDENCE if None not in dict(entity).values()}
    assert client_limit(quotas, PRODUCER_BYTE_RATE, "bob", "other") is None


def test_an_address_has_its_own_limit_or_the_default() -> None:
    quotas = {(("ip", None),): {CONNECTION_CREATION_RATE: 5.0}, (("ip", "10.0.0.1"),): {CONNECTION_CREATION_RATE: 9.0}}
    assert address_limit(quotas, CONNECTION_CREATION_RATE, "10.0.0.1") == Limit(9.0, LimitedClients("10.0.0.1", None))
    assert address_limit(quotas, CONNECTION_CREATION_RATE, "10.0.0.2") == Limit(5.0, LimitedClients("10.0.0.2", None))
    assert address_limit({}, CONNECTION_CREATION_RATE, "10.0.0.2") is None
