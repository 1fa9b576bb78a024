"""ACL filters: Kafka's rules for pattern types, wildcards and entry fields."""

import sys
from random import Random
from types import FrameType

import pytest

from cordwood.cluster.metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    Pattern,
    Permission,
    ResourcePattern,
)
from cordwood.cluster.resources.turns import FREE_STEPS
from cordwood.storage.steps import at_once, in_order, some

TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
LITERAL, PREFIXED, ANY, MATCH = Pattern.LITERAL, Pattern.PREFIXED, Pattern.ANY, Pattern.MATCH

PATTERNS = {
    "flights": ResourcePattern(TOPIC, "flights", LITERAL),
    "fl...": ResourcePattern(TOPIC, "fl", PREFIXED),
    "flights...": ResourcePattern(TOPIC, "flights", PREFIXED),
    "*": ResourcePattern(TOPIC, "*", LITERAL),
    "group": ResourcePattern(GROUP, "flights", LITERAL),
}


def acl_on(pattern: ResourcePattern) -> Acl:
    return Acl(pattern, "User:alice", "10.0.0.1", AclOperation.READ, Permission.ALLOW)


def found(resource: AclResource, name: str | None, pattern: Pattern) -> set[str]:
    wanted = AclFilter(resource, name, pattern, None, None, AclOperation.ANY, Permission.ANY)
    return {word for word, pattern in PATTERNS.items() if wanted.matches(acl_on(pattern))}


@pytest.mark.parametrize(
    ("resource", "name", "pattern", "words"),
    [
        (TOPIC, "flights", LITERAL, {"flights"}),
        (TOPIC, "flights", PREFIXED, {"flights..."}),
        (TOPIC, "flights", ANY, {"flights", "flights..."}),
        (TOPIC, "flights", MATCH, {"flights", "fl...", "flights...", "*"}),
        (TOPIC, "flow", MATCH, {"fl...", "*"}),
        (TOPIC, "*", LITERAL, {"*"}),
        (TOPIC, "*", MATCH, {"*"}),
        (TOPIC, None, LITERAL, {"flights", "*"}),
        (TOPIC, None, MATCH, {"flights", "fl...", "flights...", "*"}),
        (GROUP, None, ANY, {"group"}),
        (AclResource.ANY, "flights", LITERAL, {"flights", "group"}),
        (AclResource.ANY, None, ANY, set(PATTERNS)),
        (AclResource.CLUSTER, None, ANY, set()),
    ],
)
def test_a_filter_finds_resource_patterns(
    resource: AclResource, name: str | None, pattern: Pattern, words: set[str]
) -> None:
    assert found(resource, name, pattern) == words


@pytest.mark.parametrize(
    ("principal", "host", "operation", "permission", "is_found"),
    [
        (None, None, AclOperation.ANY, Permission.ANY, True),
        ("User:alice", "10.0.0.1", AclOperation.READ, Permission.ALLOW, True),
        ("User:bob", None, AclOperation.ANY, Permission.ANY, False),
        ("User:*", None, AclOperation.ANY, Permission.ANY, False),
        (None, "*", AclOperation.ANY, Permission.ANY, False),
        (None, None, AclOperation.ALL, Permission.ANY, False),
        (None, None, AclOperation.ANY, Permission.DENY, False),
    ],
)
def test_a_filter_compares_the_entry_word_by_word(
    principal: str | None, host: str | None, operation: AclOperation, permission: Permission, is_found: bool
) -> None:
    wanted = AclFilter(TOPIC, None, ANY, principal, host, operation, permission)
    assert wanted.matches(acl_on(PATTERNS["flights"])) is is_found


def test_thousands_of_acls_are_sorted_without_a_long_first_step() -> None:
    acls = [acl_on(ResourcePattern(TOPIC, f"topic-{number}", LITERAL)) for number in range(5000)]
    shuffled = Random(1).sample(acls, len(acls))
    calls = 0

    def count(_frame: FrameType, event: str, _called: object) -> None:
        nonlocal calls
        calls += event == "call"

    sorting = in_order(shuffled, key=Acl.sort_key)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert some(sorting, FREE_STEPS) is None, "there is more to do"
    finally:
        sys.setprofile(before)
    assert calls < 3000, "a request's first steps do not wait for their turn"
    assert at_once(in_order(shuffled, key=Acl.sort_key)) == sorted(acls)
