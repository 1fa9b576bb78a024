"""Decisions by ACLs, against a literal model of Kafka's StandardAuthorizer, and the traps of others by name."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line_counter import lines

from cordwood.cluster.metadata.acls import Acl, AclOperation, AclResource, Pattern, Permission, ResourcePattern
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.acl_authorizer import AclAuthorizer, BadHost, host_key
from cordwood.cluster.security.authorizer import CLUSTER_NAME, OPERATIONS_ON
from cordwood.cluster.security.principal import THIS_BROKER, Identity, Principal

Op, On = AclOperation, AclResource
ALICE = Identity(Principal("User", "alice"), "10.0.0.1")
BOB = Identity(Principal("User", "bob"), "10.0.0.2")
ROOT = Identity(Principal("User", "root"), "10.0.0.9")
NAMES = ("a", "ab", "abc", "b", "*", "hardcode")
HOSTS = ("*", "10.0.0.1", "10.0.0.0/24", "10.0.0.2/31", "10.0.0.1/32", "0.0.0.0/0", "::/0", "fe80::/10", "somewhere")
CLIENT_HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.1.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "::1", "")


def acl(
    operation: AclOperation,
    name: str = "a",
    *,
    pattern: Pattern = Pattern.LITERAL,
    who: str = "User:alice",
    host: str = "*",
    denies: bool = False,
    on: AclResource = On.TOPIC,
) -> Acl:
    permission = Permission.DENY if denies else Permission.ALLOW
    return Acl(ResourcePattern(on, name, pattern), who, host, operation, permission)


def authorizer(*acls: Acl, allows: bool = False, super_users: tuple[str, ...] = ()) -> AclAuthorizer:
    made = AclAuthorizer(frozenset(super_users), allows_if_no_acl=allows)
    made.begin({UUID(int=number): one for number, one in enumerate(acls)})
    return made


class Model:
    """Kafka's rules, read one by one over the list of all ACLs."""

    def __init__(self, acls: list[Acl], *, allows: bool, super_users: tuple[str, ...]) -> None:
        self.acls, self.allows, self.super_users = acls, allows, super_users

    def may(self, who: Identity, operation: AclOperation, resource: AclResource, name: str) -> bool:
        if str(who.principal) in self.super_users:
            return True
        on_it = [one for one in self.acls if self._covers(one, resource, name)]
        mine = [one for one in on_it if self._is_about(one, who)]
        if any(one.permission is Permission.DENY and one.operation in (operation, Op.ALL) for one in mine):
            return False
        strong = {
            Op.DESCRIBE: (Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER),
            Op.DESCRIBE_CONFIGS: (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        }.get(operation, (operation,))
        if any(one.permission is Permission.ALLOW and one.operation in (*strong, Op.ALL) for one in mine):
            return True
        return self.allows and not on_it

    def may_write_any(self, who: Identity, resource: AclResource) -> bool:
        if self.may(who, Op.WRITE, resource, "hardcode"):
            return True
        mine = [
            one
            for one in self.acls
            if one.on.resource is resource and self._is_about(one, who) and one.operation in (Op.WRITE, Op.ALL)
        ]
        denied = {one.on for one in mine if one.permission is Permission.DENY}
        allowed = {one.on for one in mine if one.permission is Permission.ALLOW}
        everything = ResourcePattern(resource, "*", Pattern.LITERAL)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(on not in denied and not self._is_dominated(on, denied) for on in allowed)

    @staticmethod
    def _is_dominated(on: ResourcePattern, denied: set[ResourcePattern]) -> bool:
        return any(other.pattern is Pattern.PREFIXED and on.name.startswith(other.name) for other in denied)

    @staticmethod
    def _covers(one: Acl, resource: AclResource, name: str) -> bool:
        if one.on.resource is not resource:
            return False
        if one.on.pattern is Pattern.PREFIXED:
            return name.startswith(one.on.name)
        return one.on.name in (name, "*")

    @staticmethod
    def _is_about(one: Acl, who: Identity) -> bool:
        if one.principal not in (str(who.principal), "User:*"):
            return False
        if one.host in ("*", who.host):
            return True
        if not who.host or one.host == "somewhere":
            return False
        address = ip_address(who.host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return address in ip_network(one.host, strict=False)


acls = st.builds(
    acl,
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]),
    st.sampled_from(NAMES),
    pattern=st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    who=st.sampled_from(["User:alice", "User:bob", "User:*", "Other:alice"]),
    host=st.sampled_from(HOSTS),
    denies=st.booleans(),
    on=st.sampled_from([On.TOPIC, On.GROUP]),
)
clients = st.builds(
    Identity,
    st.sampled_from([Principal("User", "alice"), Principal("User", "bob"), Principal("Other", "alice")]),
    st.sampled_from(CLIENT_HOSTS),
)


def test_a_deny_wins_over_every_allow() -> None:
    made = authorizer(acl(Op.READ), acl(Op.ALL, "*"), acl(Op.READ, "a", pattern=Pattern.PREFIXED, denies=True))
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")
    assert made.may(ALICE, Op.WRITE, On.TOPIC, "a")


def test_a_deny_of_read_does_not_deny_describe() -> None:
    made = authorizer(acl(Op.WRITE), acl(Op.READ, denies=True))
    assert made.may(ALICE, Op.DESCRIBE, On.TOPIC, "a")


def test_a_deny_of_a_strong_right_implies_nothing() -> None:
    made = authorizer(acl(Op.DESCRIBE), acl(Op.DESCRIBE_CONFIGS), *(acl(op, denies=True) for op in (Op.ALTER, Op.READ)))
    assert made.may(ALICE, Op.DESCRIBE, On.TOPIC, "a")
    assert made.may(ALICE, Op.DESCRIBE_CONFIGS, On.TOPIC, "a")


@pytest.mark.parametrize("stronger", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER])
def test_these_imply_describe(stronger: AclOperation) -> None:
    assert authorizer(acl(stronger)).may(ALICE, Op.DESCRIBE, On.TOPIC, "a")


@pytest.mark.parametrize("other", [Op.CREATE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS])
def test_these_do_not(other: AclOperation) -> None:
    assert not authorizer(acl(other)).may(ALICE, Op.DESCRIBE, On.TOPIC, "a")


def test_a_prefix_covers_no_shorter_name_and_a_literal_no_longer_one() -> None:
    made = authorizer(acl(Op.READ, "ab", pattern=Pattern.PREFIXED), acl(Op.READ, "x"))
    assert [name for name in ("a", "ab", "abc", "x", "xy") if made.may(ALICE, Op.READ, On.TOPIC, name)] == [
        "ab", "abc", "x",
    ]  # fmt: skip


def test_a_prefix_named_star_is_no_wildcard() -> None:
    assert not authorizer(acl(Op.READ, "*", pattern=Pattern.PREFIXED)).may(ALICE, Op.READ, On.TOPIC, "a")


def test_super_users_come_before_every_deny() -> None:
    made = authorizer(acl(Op.ALL, "*", who="User:*", denies=True), super_users=("User:root",))
    assert made.may(ROOT, Op.DELETE, On.TOPIC, "a")
    assert made.may_any(ROOT, Op.WRITE, On.TOPIC)
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")


def test_a_super_user_is_a_principal_of_its_type() -> None:
    made = authorizer(super_users=("User:root",))
    assert not made.may(Identity(Principal("Group", "root")), Op.READ, On.TOPIC, "a")


def test_no_client_can_claim_to_be_this_broker() -> None:
    made = authorizer(acl(Op.ALL, "*", who="User:*", denies=True))
    assert made.may(THIS_BROKER, Op.CLUSTER_ACTION, On.CLUSTER, CLUSTER_NAME)
    assert not made.may(replace(THIS_BROKER), Op.CLUSTER_ACTION, On.CLUSTER, CLUSTER_NAME)


def test_everyone_may_only_where_no_acl_names_the_resource() -> None:
    made = authorizer(acl(Op.READ, who="User:bob"), allows=True)
    assert made.may(ALICE, Op.READ, On.TOPIC, "b")
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")
    assert made.may(BOB, Op.READ, On.TOPIC, "a")
    assert not made.may(BOB, Op.WRITE, On.TOPIC, "a")


def test_one_of_several_acls_is_removed_and_the_others_stay() -> None:
    both = {UUID(int=1): acl(Op.READ), UUID(int=2): acl(Op.WRITE), UUID(int=3): acl(Op.READ)}
    made = AclAuthorizer()
    made.begin(both)
    before = Image(cluster_id="c", acls=both)
    after = replace(before, acls={one: both[one] for one in list(both)[1:]})
    made.on_metadata_change(before, after)
    assert made.may(ALICE, Op.READ, On.TOPIC, "a")
    assert made.may(ALICE, Op.WRITE, On.TOPIC, "a")
    last = replace(after, acls={UUID(int=2): both[UUID(int=2)]})
    made.on_metadata_change(after, last)
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")
    assert made.may(ALICE, Op.DESCRIBE, On.TOPIC, "a")


def test_a_decision_that_was_made_before_a_change_is_made_again() -> None:
    made = authorizer(acl(Op.WRITE))
    assert made.may(ALICE, Op.WRITE, On.TOPIC, "a")
    assert made.may_any(ALICE, Op.WRITE, On.TOPIC)
    image = Image(cluster_id="c", acls={UUID(int=0): acl(Op.WRITE)})
    made.on_metadata_change(image, replace(image, acls={}))
    assert not made.may(ALICE, Op.WRITE, On.TOPIC, "a")
    assert not made.may_any(ALICE, Op.WRITE, On.TOPIC)


def test_a_decision_about_any_resource_is_for_one_host() -> None:
    made = authorizer(acl(Op.WRITE, host="10.0.0.1"))
    assert made.may_any(ALICE, Op.WRITE, On.TOPIC)
    assert not made.may_any(replace(ALICE, host="10.0.0.2"), Op.WRITE, On.TOPIC)
    assert made.may_any(ALICE, Op.WRITE, On.TOPIC)


@pytest.mark.parametrize("network", ["10.0.0.0/24", "0.0.0.0/0", "10.0.0.1/32"])
def test_a_network_is_in_force_for_a_host_that_is_known_already(network: str) -> None:
    allow = {UUID(int=0): acl(Op.READ)}
    made = authorizer(*allow.values())
    assert made.may(ALICE, Op.READ, On.TOPIC, "a")
    before = Image(cluster_id="c", acls=allow)
    after = replace(before, acls={**allow, UUID(int=1): acl(Op.READ, host=network, denies=True)})
    made.on_metadata_change(before, after)
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")
    made.on_metadata_change(after, before)
    assert made.may(ALICE, Op.READ, On.TOPIC, "a")


def test_an_acl_that_is_another_one_now_is_in_force_in_its_place() -> None:
    before = Image(cluster_id="c", acls={UUID(int=0): acl(Op.READ), UUID(int=1): acl(Op.WRITE)})
    made = authorizer(*before.acls.values())
    made.on_metadata_change(before, replace(before, acls={**before.acls, UUID(int=0): acl(Op.ALTER)}))
    assert [op for op in (Op.READ, Op.WRITE, Op.ALTER) if made.may(ALICE, op, On.TOPIC, "a")] == [Op.WRITE, Op.ALTER]


def test_before_the_acls_are_known_only_super_users_may_anything() -> None:
    made = AclAuthorizer(frozenset({"User:root"}), allows_if_no_acl=True)
    assert made.may(ROOT, Op.READ, On.TOPIC, "a")
    assert not made.may(ALICE, Op.READ, On.TOPIC, "a")
    assert not made.may_any(ALICE, Op.WRITE, On.TOPIC)
    assert made.operations(ALICE, On.TOPIC, "a") == 0
    made.begin({})
    assert made.is_ready


def test_an_ipv4_client_on_an_ipv6_socket_is_the_same_host() -> None:
    made = authorizer(acl(Op.READ, who="User:*"), acl(Op.READ, host="10.0.0.1", denies=True))
    assert not made.may(replace(ALICE, host="::ffff:10.0.0.1"), Op.READ, On.TOPIC, "a")
    assert made.may(replace(ALICE, host="10.0.0.2"), Op.READ, On.TOPIC, "a")


@pytest.mark.parametrize("host", ["10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0/8", "/8", "10.0.0.0/", "a/8", "::/129"])
def test_a_host_with_a_slash_that_is_no_network_is_refused(host: str) -> None:
    with pytest.raises(BadHost):
        host_key(host)


ANY_RESOURCE: tuple[tuple[str, tuple[Acl, ...], bool], ...] = (
    ("nothing", (), False),
    ("an allow", (acl(Op.WRITE, "t"),), True),
    ("a read is no write", (acl(Op.READ, "t"),), False),
    ("a wildcard deny beats all", (acl(Op.WRITE, "t"), acl(Op.WRITE, "*", denies=True)), False),
    ("so does one of all operations", (acl(Op.WRITE, "*"), acl(Op.ALL, "*", denies=True, who="User:*")), False),
    ("a prefixed deny dominates a longer allow", (
        acl(Op.WRITE, "foo", pattern=Pattern.PREFIXED), acl(Op.WRITE, "fo", pattern=Pattern.PREFIXED, denies=True),
    ), False),
    ("and a literal one", (
        acl(Op.WRITE, "foo"), acl(Op.WRITE, "fo", pattern=Pattern.PREFIXED, denies=True),
    ), False),
    ("a longer deny dominates nothing", (
        acl(Op.WRITE, "fo", pattern=Pattern.PREFIXED), acl(Op.WRITE, "foo", pattern=Pattern.PREFIXED, denies=True),
    ), True),
    ("a literal deny dominates its own name", (acl(Op.WRITE, "t"), acl(Op.WRITE, "t", denies=True)), False),
    ("not the prefix", (acl(Op.WRITE, "t", pattern=Pattern.PREFIXED), acl(Op.WRITE, "t", denies=True)), True),
    ("a deny of another counts not", (acl(Op.WRITE, "t"), acl(Op.WRITE, "*", denies=True, who="User:bob")), True),
    ("nor a deny from another host", (acl(Op.WRITE, "t"), acl(Op.WRITE, "*", denies=True, host="10.9.0.0/16")), True),
)  # fmt: skip


@pytest.mark.parametrize(("acls", "expected"), [row[1:] for row in ANY_RESOURCE], ids=[row[0] for row in ANY_RESOURCE])
def test_any_resource_of_a_type(acls: tuple[Acl, ...], expected: bool) -> None:
    assert authorizer(*acls).may_any(ALICE, Op.WRITE, On.TOPIC) is expected


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_it_decides_as_the_model_does_after_every_change(data: st.DataObject, allows: bool) -> None:
    made = AclAuthorizer(frozenset({"User:root"}), allows_if_no_acl=allows)
    known = dict(enumerate(data.draw(st.lists(acls, max_size=8))))
    image = Image(cluster_id="c", acls={UUID(int=number): one for number, one in known.items()})
    made.begin(image.acls)
    for _ in range(3):
        model = Model(list(image.acls.values()), allows=allows, super_users=("User:root",))
        for who in (*data.draw(st.lists(clients, min_size=1, max_size=3)), ROOT):
            for resource in (On.TOPIC, On.GROUP):
                assert made.may_any(who, Op.WRITE, resource) == model.may_write_any(who, resource), (who, resource)
                for name in ("a", "ab", "abcd", "b", "c"):
                    wanted = [op for op in Op if op > Op.ALL and model.may(who, op, resource, name)]
                    assert [op for op in Op if op > Op.ALL and made.may(who, op, resource, name)] == wanted
                    bits = sum(1 << op for op in wanted) & OPERATIONS_ON[resource]
                    assert made.operations(who, resource, name) == bits
        gone = data.draw(st.sets(st.sampled_from(list(image.acls)))) if image.acls else set()
        left = {acl_id: one for acl_id, one in image.acls.items() if acl_id not in gone}
        first = 1 + max((acl_id.int for acl_id in image.acls), default=0)
        new = {UUID(int=first + number): one for number, one in enumerate(data.draw(st.lists(acls, max_size=3)))}
        later = replace(image, acls={**left, **new})
        made.on_metadata_change(image, later)
        image = later


def test_names_and_hosts_that_clients_choose_take_bounded_memory() -> None:
    made = authorizer(acl(Op.READ))
    for number in range(25_000):
        made.may(ALICE, Op.READ, On.GROUP, f"group-{number}")
    made.may(ALICE, Op.READ, On.GROUP, "x" * 32_000)
    assert len(made._operations) <= 20_000
    assert all(len(key[-1]) <= 249 for key in made._operations)


def test_the_number_of_acls_does_not_slow_a_decision() -> None:
    """Counted in lines that run, not by the clock. With 100,000 ACLs it is the same, and the test takes 2 s."""

    def steps(count: int) -> int:
        made = authorizer(
            *(acl(Op.READ, f"topic-{number}", who=f"User:{number}") for number in range(count)),
            *(acl(Op.READ, f"p{number:05}", pattern=Pattern.PREFIXED, who=f"User:{number}") for number in range(count)),
            *(acl(Op.READ, "shared", who=f"User:{number}") for number in range(count)),
            *(acl(Op.READ, "p", pattern=Pattern.PREFIXED, host=f"10.0.{number % 256}.0/24") for number in range(count)),
        )
        return sum(
            lines_of_permission(made, Identity(Principal("User", "77"), "10.0.0.1"), name)
            for name in ("topic-77", "p00077", "shared")
        )

    assert steps(5_000) == steps(100)


def test_a_removed_prefix_slows_no_decision() -> None:
    """Counted in lines that run. A decision looks for each length of the prefixes."""
    allow = acl(Op.READ, "x" * 100)
    prefixes = {UUID(int=length): acl(Op.READ, "x" * length, pattern=Pattern.PREFIXED) for length in range(1, 80)}

    def steps(made: AclAuthorizer) -> int:
        return lines_of_permission(made, ALICE, "x" * 100)

    image = Image(cluster_id="c", acls={UUID(int=0): allow})
    made = authorizer(allow)
    fewest = steps(made)
    with_prefixes = replace(image, acls={**image.acls, **prefixes})
    made.on_metadata_change(image, with_prefixes)
    assert steps(made) > fewest
    made.on_metadata_change(with_prefixes, image)
    assert steps(made) == fewest


def lines_of_permission(made: AclAuthorizer, who: Identity, topic: str) -> int:
    """Return the number of Python lines of a decision that permits."""

    def decide() -> None:
        assert made.may(who, Op.READ, On.TOPIC, topic)

    return lines(decide)
