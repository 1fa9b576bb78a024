"""Access by ACLs, decided as by Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-679, KIP-1276). Pure.

A super user may do everything. A DENY wins over every ALLOW. If no ACL matches, `allow.everyone.if.no.acl.found` counts
for a resource that no ACL names at all; for any other resource the answer is no. READ, WRITE, DELETE and ALTER imply
DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, in an ALLOW; in a DENY they imply nothing.

ACLs are indexed by resource pattern, then by principal and host. The cost of a decision grows with the number of
different lengths of prefixes and of networks, not with the number of ACLs. Decisions are cached until an ACL changes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from uuid import UUID

from cordwood.cluster.metadata.acls import WILDCARD, Acl, AclOperation, AclResource, Pattern, Permission
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.security.authorizer import OPERATIONS_ON
from cordwood.cluster.security.principal import THIS_BROKER, USER, Identity, Principal

ANYONE = str(Principal(USER, WILDCARD))
DECISIONS_MAX, HOSTS_MAX = 20_000, 1000
CACHED_NAME_CHARS_MAX = 249
"""A longer name is no topic's, and is decided without the cache: a group's name may have 32 KiB."""

_EVERYTHING = sum(1 << operation for operation in AclOperation if operation > AclOperation.ALL)
_NOTHING = 0
_IMPLY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_SOME_NAME = "hardcode"
"""Kafka's stand-in for a resource that no ACL names, in a decision about any resource of a type."""

HostKey = str | tuple[int, int, int]
"""A host of ACLs: an address, WILDCARD, or a network as version, prefix length and leading bits."""


class BadHost(ValueError):
    """The host of an ACL has a slash, and is no network in CIDR notation."""


def host_key(text: str) -> HostKey:
    """Return the key of an ACL's host. A text that is no address matches no client. Raises BadHost."""
    address, slash, length = text.partition("/")
    if not slash:
        return _canonical(text)
    try:
        if not (length.isascii() and length.isdigit()):
            raise ValueError(f"{length!r} is no prefix length")
        parsed = ip_address(address)
        network = (IPv4Network if parsed.version == 4 else IPv6Network)(text, strict=False)
    except ValueError as error:
        raise BadHost(f"{text!r} is no network in CIDR notation, such as 10.0.0.0/8: {error}") from None
    bits = network.max_prefixlen
    return network.version, network.prefixlen, int(network.network_address) >> (bits - network.prefixlen)


def _canonical(text: str) -> str:
    """Return the usual text of an address, of an IPv4 client on an IPv6 socket too; any other text as it is."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


class _Rule(NamedTuple):
    """The ACLs of one principal and host on one pattern: each of them, and all that they allow and deny."""

    acls: tuple[tuple[AclOperation, Permission], ...] = ()
    allowed: int = _NOTHING
    denied: int = _NOTHING

    @classmethod
    def of(cls, acls: tuple[tuple[AclOperation, Permission], ...]) -> "_Rule":
        allowed = denied = _NOTHING
        for operation, permission in acls:
            if permission is Permission.ALLOW:
                allowed |= _allowed_by(operation)
            else:
                denied |= _EVERYTHING if operation is AclOperation.ALL else 1 << operation
        return cls(acls, allowed, denied)


def _allowed_by(operation: AclOperation) -> int:
    if operation is AclOperation.ALL:
        return _EVERYTHING
    implied = sum(1 << weaker for weaker, stronger in _IMPLY.items() if operation in stronger)
    return 1 << operation | implied


_NO_RULE = _Rule()
_Rules = dict[tuple[str, HostKey], _Rule]
"""The ACLs on one resource pattern, by principal and host."""


class _Patterns:
    """The ACLs on one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self._lengths: Counter[int] = Counter()
        self.lengths: tuple[int, ...] = ()
        """The lengths of the prefixes, ascending."""
        self.by_principal: dict[str, Counter[tuple[Pattern, str]]] = {}
        """The patterns on which a principal has an ACL, with the number of them."""

    def matching(self, name: str) -> Iterator[_Rules]:
        """Yield the ACLs of each pattern that covers the resource of that name."""
        if (found := self.literal.get(name)) is not None:
            yield found
        if name != WILDCARD and (found := self.literal.get(WILDCARD)) is not None:
            yield found
        for length in self.lengths:
            if length > len(name):
                break
            if (found := self.prefixed.get(name[:length])) is not None:
                yield found

    def rules(self, pattern: Pattern, name: str) -> _Rules:
        return (self.literal if pattern is Pattern.LITERAL else self.prefixed)[name]

    def add(self, acl: Acl, host: HostKey) -> None:
        pattern, name, is_prefix = acl.on.pattern, acl.on.name, acl.on.pattern is Pattern.PREFIXED
        by_name = self.prefixed if is_prefix else self.literal
        rules = by_name.get(name)
        if rules is None:
            rules = by_name[name] = {}
            if is_prefix:
                self._count_length(len(name), 1)
        before = rules.get((acl.principal, host), _NO_RULE)
        rules[acl.principal, host] = _Rule.of((*before.acls, (acl.operation, acl.permission)))
        self.by_principal.setdefault(acl.principal, Counter())[pattern, name] += 1

    def remove(self, acl: Acl, host: HostKey) -> None:
        pattern, name, is_prefix = acl.on.pattern, acl.on.name, acl.on.pattern is Pattern.PREFIXED
        by_name = self.prefixed if is_prefix else self.literal
        rules = by_name[name]
        left = list(rules[acl.principal, host].acls)
        left.remove((acl.operation, acl.permission))
        if left:
            rules[acl.principal, host] = _Rule.of(tuple(left))
        else:
            del rules[acl.principal, host]
        if not rules:
            del by_name[name]
            if is_prefix:
                self._count_length(len(name), -1)
        patterns = self.by_principal[acl.principal]
        patterns[pattern, name] -= 1
        if not patterns[pattern, name]:
            del patterns[pattern, name]
        if not patterns:
            del self.by_principal[acl.principal]

    def _count_length(self, length: int, change: int) -> None:
        self._lengths[length] += change
        if not self._lengths[length]:
            del self._lengths[length]
        if len(self._lengths) != len(self.lengths):
            self.lengths = tuple(sorted(self._lengths))


class AclAuthorizer:
    """The decisions of one broker. Refuses everyone but super users until `begin`."""

    def __init__(self, super_users: frozenset[str] = frozenset(), *, allows_if_no_acl: bool = False) -> None:
        self._super_users = super_users
        self._without_acls = _EVERYTHING if allows_if_no_acl else _NOTHING
        self.is_ready = False
        self._types = {resource: _Patterns() for resource in AclResource}
        self._networks: Counter[tuple[int, int]] = Counter()
        """The versions and prefix lengths of the networks among the hosts."""
        self._operations: dict[tuple[Principal, str, AclResource, str], int] = {}
        """The operations that a principal may do from a host on a resource."""
        self._any: dict[tuple[Principal, str, AclOperation, AclResource], bool] = {}
        self._hosts: dict[str, tuple[HostKey, ...]] = {}

    def begin(self, acls: Mapping[UUID, Acl]) -> None:
        """Decide by these ACLs from now on. They include all that were created before this broker registered."""
        self._change((), acls.values())
        self.is_ready = True

    def on_metadata_change(self, old: Image, new: Image) -> None:
        if self.is_ready and old.acls is not new.acls:
            self._change(*_difference(old.acls, new.acls))

    def may(self, identity: Identity, operation: AclOperation, resource: AclResource, name: str, /) -> bool:
        return bool(self._of(identity, resource, name) >> operation & 1)

    may_see = may

    def may_any(self, identity: Identity, operation: AclOperation, resource: AclResource, /) -> bool:
        if self.may(identity, operation, resource, _SOME_NAME):
            return True
        key = (identity.principal, identity.host, operation, resource)
        known = self._any.get(key)
        if known is None:
            if len(self._any) >= HOSTS_MAX:
                self._any.clear()
            known = self._any[key] = self._find_any(str(identity.principal), identity.host, 1 << operation, resource)
        return known

    def operations(self, identity: Identity, resource: AclResource, name: str, /) -> int:
        return self._of(identity, resource, name) & OPERATIONS_ON[resource]

    def _change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        for acl in removed:
            host = _host_key_of(acl)
            self._types[acl.on.resource].remove(acl, host)
            self._count_network(host, -1)
        for acl in added:
            host = _host_key_of(acl)
            self._types[acl.on.resource].add(acl, host)
            self._count_network(host, 1)
        self._operations.clear()
        self._any.clear()
        self._hosts.clear()

    def _count_network(self, host: HostKey, change: int) -> None:
        if isinstance(host, tuple):
            network = host[:2]
            self._networks[network] += change
            if not self._networks[network]:
                del self._networks[network]

    def _of(self, identity: Identity, resource: AclResource, name: str) -> int:
        """Return all operations that the identity may do on a resource, as a bit set."""
        if identity is THIS_BROKER:
            return _EVERYTHING
        key = (identity.principal, identity.host, resource, name)
        known = self._operations.get(key)
        if known is None:
            known = self._decide(str(identity.principal), identity.host, resource, name)
            if len(name) <= CACHED_NAME_CHARS_MAX:
                if len(self._operations) >= DECISIONS_MAX:
                    self._operations.clear()
                self._operations[key] = known
        return known

    def _decide(self, principal: str, host: str, resource: AclResource, name: str) -> int:
        if principal in self._super_users:
            return _EVERYTHING
        if not self.is_ready:
            return _NOTHING
        keys = self._keys(principal, host)
        allowed = denied = _NOTHING
        is_named = False
        for rules in self._types[resource].matching(name):
            is_named = True
            for key in keys:
                rule = rules.get(key)
                if rule is not None:
                    allowed |= rule.allowed
                    denied |= rule.denied
        return allowed & ~denied if is_named else self._without_acls

    def _keys(self, principal: str, host: str) -> list[tuple[str, HostKey]]:
        """Return the principals and hosts whose ACLs are about this client."""
        hosts = self._hosts.get(host)
        if hosts is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            hosts = self._hosts[host] = self._hosts_of(host)
        return [(who, where) for who in (principal, ANYONE) for where in hosts]

    def _hosts_of(self, host: str) -> tuple[HostKey, ...]:
        canonical = _canonical(host)
        networks: list[HostKey] = []
        try:
            address = ip_address(canonical)
        except ValueError:
            pass
        else:
            bits = int(address)
            networks = [
                (version, length, bits >> (address.max_prefixlen - length))
                for version, length in self._networks
                if version == address.version
            ]
        return (canonical, WILDCARD, *networks)

    def _find_any(self, principal: str, host: str, bit: int, resource: AclResource) -> bool:
        """Return whether an ALLOW is left that no DENY dominates: a wildcard, the same name, or a prefix of it."""
        of_type, keys = self._types[resource], self._keys(principal, host)
        allowed: list[tuple[Pattern, str]] = []
        denied: set[tuple[Pattern, str]] = set()
        mine: dict[tuple[Pattern, str], None] = {}
        for who in (principal, ANYONE):
            mine |= dict.fromkeys(of_type.by_principal.get(who, ()))
        for place in mine:
            found = [rule for key in keys if (rule := of_type.rules(*place).get(key)) is not None]
            if any(rule.denied & bit for rule in found):
                denied.add(place)
            elif any(rule.allowed & bit for rule in found):
                allowed.append(place)
        if not self.is_ready or (Pattern.LITERAL, WILDCARD) in denied:
            return False
        return any(
            place == (Pattern.LITERAL, WILDCARD)
            or not any((Pattern.PREFIXED, place[1][:length]) in denied for length in of_type.lengths)
            for place in allowed
        )


def _host_key_of(acl: Acl) -> HostKey:
    """Return the key of an ACL's host. One that is no network, from an earlier version, matches no client."""
    try:
        return host_key(acl.host)
    except BadHost:
        return acl.host


def _difference(old: Mapping[UUID, Acl], new: Mapping[UUID, Acl]) -> tuple[list[Acl], list[Acl]]:
    """Return the removed and the added ACLs.

    Images keep the order of the ACLs: one pass compares the ids without hashing them. In any other order an ACL may be
    in both lists, which changes nothing.
    """
    removed: list[Acl] = []
    rest = iter(new.items())
    newer = next(rest, None)
    for acl_id, acl in old.items():
        if newer is not None and (newer[0] is acl_id or newer[0] == acl_id) and newer[1] == acl:
            newer = next(rest, None)
        else:
            removed.append(acl)
    added = [] if newer is None else [newer[1], *(acl for _, acl in rest)]
    return removed, added
