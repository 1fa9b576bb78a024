"""Checks of proposed quotas: entities, keys and values that no cluster can have."""

import math

import pytest

from cordwood.cluster.quotas.validation import InvalidQuota, checked_entity, checked_value

USER, IP = (("user", "ann"),), (("ip", None),)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("group", "x")], "Unhandled client quota entity type: group"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("user", "a"), ("ip", "10.0.0.1")], "Invalid empty client quota entity"),
        ([("ip", "not an address")], "not a valid IP"),
        ([("user", "a" * 2000)], "at most 1024"),
    ],
)
def test_an_entity_that_no_quota_can_have(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(InvalidQuota, match=message):
        checked_entity(parts)


def test_the_order_of_the_parts_does_not_matter() -> None:
    assert checked_entity([("user", "a"), ("client-id", None)]) == checked_entity([("client-id", None), ("user", "a")])


def test_an_address_has_one_form() -> None:
    assert checked_entity([("ip", "0:0:0:0:0:0:0:1")]) == (("ip", "::1"),)


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER, "connection_creation_rate", 1.0),
        (IP, "producer_byte_rate", 1.0),
        (USER, "bytes", 1.0),
        (USER, "producer_byte_rate", 0.0),
        (USER, "producer_byte_rate", -1.0),
        (USER, "producer_byte_rate", 1.5),
        (USER, "producer_byte_rate", 1e30),
        (USER, "request_percentage", math.nan),
        (USER, "request_percentage", math.inf),
        (IP, "connection_creation_rate", 0.5),
    ],
)
def test_a_value_that_no_quota_can_have(entity: tuple[tuple[str, str | None], ...], key: str, value: float) -> None:
    with pytest.raises(InvalidQuota):
        checked_value(entity, key, value)


def test_values_that_are_kept() -> None:
    assert checked_value(USER, "request_percentage", 12.5) == 12.5
    assert checked_value(USER, "controller_mutation_rate", 0.25) == 0.25
    assert checked_value(USER, "producer_byte_rate", 1_000_000.0000001) == 1_000_000.0
    assert checked_value(USER, "producer_byte_rate", None) is None


def test_a_whole_number_that_rounds_to_nothing_is_refused() -> None:
    """A rate of 0 would have no end of a debt."""
    with pytest.raises(InvalidQuota, match="must be a Long value"):
        checked_value(checked_entity([("user", "ann")]), "producer_byte_rate", 5e-7)
