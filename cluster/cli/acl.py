"""`cordwood acl`: who may do what (ACLs), with the options of Kafka's kafka-acls."""

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.admin import PATIENCE_S, answer_of, cluster_admin
from cordwood.cluster.cli.client import target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.option_groups import with_groups
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_rows

if TYPE_CHECKING:
    from kafka.admin import ACL, ACLFilter, KafkaAdminClient

ANY_HOST = "*"
CLUSTER_NAME = "kafka-cluster"
ALLOW, DENY, ANY = "ALLOW", "DENY", "ANY"
OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
)
HEADINGS = ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"]

app = typer.Typer(no_args_is_help=True, help="Add, list and remove ACLs: who may do what.")

Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are prefixes of names.")]
Producer = Annotated[
    bool,
    typer.Option("--producer", help="The rights of a producer: topics to write, and transactional ids if given."),
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="The rights of a consumer: topics and groups to read, which are required.")
]


@dataclass(frozen=True, slots=True)
class PrincipalOptions:
    """Who may do what, from where."""

    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            "--allow-principal",
            metavar="PRINCIPAL",
            help="User:NAME, or User:* for everyone; may be repeated.",
        ),
    ] = None
    denied: Annotated[
        list[str] | None,
        typer.Option("--deny", "--deny-principal", metavar="PRINCIPAL", help="A principal to deny; wins over --allow."),
    ] = None
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="ADDRESS", help="An address or a network, such as 10.0.0.0/8; any host if omitted."
        ),
    ] = None
    operations: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="OPERATION", help=f"One of {', '.join(OPERATIONS)}; may be repeated."),
    ] = None


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The resources that ACLs are about."""

    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic, or * for all; may be repeated.")
    ] = None
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A consumer group, or * for all; may be repeated."),
    ] = None
    transactional_ids: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; may be repeated.")
    ] = None
    delegation_tokens: Annotated[
        list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token; may be repeated.")
    ] = None
    user_principals: Annotated[
        list[str] | None,
        typer.Option(
            "--user-principal", metavar="PRINCIPAL", help="A user whose tokens others create; may be repeated."
        ),
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False


@dataclass(frozen=True, slots=True)
class AclResources:
    """Resources of one type by a name or a prefix."""

    type: str
    name: str
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One ACL, or a filter for ACLs: None and ANY match everything."""

    pattern: AclResources | None
    operation: str
    principal: str | None
    permission: str
    host: str | None


@app.command()
@with_groups
def add(
    principals: PrincipalOptions,
    resources: ResourceOptions,
    prefixed: Prefixed = False,
    producer: Producer = False,
    consumer: Consumer = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Add ACLs for all combinations of the given principals, operations and resources.

    --producer and --consumer stand for the operations that such clients need:

    cordwood acl add --allow User:alice --producer --topic orders
    """
    patterns = _patterns(resources, prefixed)
    rules = _rules(patterns, principals, ANY_HOST, producer, consumer)
    if not (principals.allowed or principals.denied):
        raise Failure("give at least one --allow User:NAME or --deny User:NAME.", ExitCode.USAGE)
    if not patterns:
        raise Failure("give at least one resource, such as --topic NAME or --cluster.", ExitCode.USAGE)
    if any(rule.operation == ANY for rule in rules):
        raise Failure("give --operation, --producer or --consumer.", ExitCode.USAGE)
    with cluster_admin(target_of(servers, command_config)) as admin:
        wanted = [_acl(rule) for rule in rules]
        outcome = answer_of(lambda: admin.create_acls(wanted), time.monotonic() + PATIENCE_S)
    if outcome["failed"]:
        error = outcome["failed"][0]
        raise Failure(f"the broker refused {len(outcome['failed'])} of {len(rules)} ACLs: {error.__name__}.")
    for rule in rules:
        typer.echo(f"{_in_words(rule)}: added")


@app.command(name="list")
@with_groups
def list_acls(
    *,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Only ACLs of this principal.")
    ] = None,
    resources: ResourceOptions,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """List ACLs. For a named resource, also those with a prefix of its name, or for all."""
    patterns = _patterns(resources, False)
    if principal is not None:
        _check_principal(principal)
    anything: tuple[AclResources | None, ...] = tuple(patterns) or (None,)
    filters = [_filter(Rule(pattern, ANY, principal, ANY, None), matches_names=True) for pattern in anything]
    with cluster_admin(target_of(servers, command_config)) as admin:
        found = set(_described(admin, filters))
    rows = sorted((_row(acl) for acl in found), key=lambda row: tuple(row.values()))
    print_rows(rows, HEADINGS, as_json, "No ACL was found. Add one with `cordwood acl add`.")


@app.command()
@with_groups
def remove(
    principals: PrincipalOptions,
    resources: ResourceOptions,
    prefixed: Prefixed = False,
    producer: Producer = False,
    consumer: Consumer = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Remove ACLs. The options are those of `add`; an omitted one matches every ACL.

    With the options of an earlier `add`, its ACLs are removed.
    """
    patterns = _patterns(resources, prefixed)
    if not (patterns or principals.allowed or principals.denied):
        raise Failure(
            "give a resource, such as --topic NAME, or a principal, such as --allow User:NAME.", ExitCode.USAGE
        )
    rules = _rules(patterns, principals, None, producer, consumer)
    with cluster_admin(target_of(servers, command_config)) as admin:
        filters = [_filter(rule) for rule in rules]
        if not yes and sys.stdin.isatty():
            count = len(set(_described(admin, filters)))
            typer.confirm(f"Remove {count} ACLs?", abort=True, err=True)
        outcomes = answer_of(lambda: admin.delete_acls(filters), time.monotonic() + PATIENCE_S)
    failed = next((error for _, _, error in outcomes if error.errno), None)
    removed = {acl for _, acls, _ in outcomes for acl in acls}
    for text in sorted(_text(acl) for acl in removed):
        typer.echo(f"{text}: removed")
    if failed is not None:
        raise Failure(f"the broker refused to remove ACLs: {failed.__name__}.")
    if not removed:
        raise Failure("there are no such ACLs. `cordwood acl list` shows all of them.")


def _described(admin: "KafkaAdminClient", filters: "list[ACLFilter]") -> "Iterator[ACL]":
    """Yield the ACLs of each filter; more than once if several match."""
    deadline_s = time.monotonic() + PATIENCE_S
    for each in filters:
        yield from answer_of(partial(admin.describe_acls, each), deadline_s)[0]


def _patterns(resources: ResourceOptions, prefixed: bool) -> list[AclResources]:
    named = {
        "TOPIC": resources.topics,
        "GROUP": resources.groups,
        "TRANSACTIONAL_ID": resources.transactional_ids,
        "DELEGATION_TOKEN": resources.delegation_tokens,
        "USER": resources.user_principals,
    }
    found = [AclResources(kind, name, prefixed) for kind, names in named.items() for name in names or ()]
    return [*found, AclResources("CLUSTER", CLUSTER_NAME, False)] if resources.cluster else found


def _principals(options: PrincipalOptions) -> list[tuple[str, str | None]]:
    """Return permission and principal of each option; any, without an option. Raises Failure with exit code 2."""
    given: list[tuple[str, str | None]] = [
        *((ALLOW, one) for one in options.allowed or ()),
        *((DENY, one) for one in options.denied or ()),
    ]
    for principal in (*(options.allowed or ()), *(options.denied or ())):
        _check_principal(principal)
    return given or [(ANY, None)]


def _check_principal(principal: str) -> None:
    kind, _, name = principal.partition(":")
    if not (kind and name):
        raise Failure(f"{principal!r} is not a principal: write it as User:{principal or 'NAME'}.", ExitCode.USAGE)


def _rules(
    patterns: list[AclResources], options: PrincipalOptions, any_host: str | None, producer: bool, consumer: bool
) -> list[Rule]:
    """Return an ACL or a filter for each combination. Raises Failure with exit code 2."""
    principals, operations = _principals(options), options.operations or ()
    pairs: list[tuple[AclResources | None, str]] = []
    if producer or consumer:
        if operations:
            raise Failure("give either --operation, or --producer and --consumer.", ExitCode.USAGE)
        if any(permission == DENY for permission, _ in principals):
            raise Failure(
                "--producer and --consumer are for --allow only: give --operation for --deny.", ExitCode.USAGE
            )
        pairs = list(dict.fromkeys(_conveniences(patterns, producer, consumer)))
    else:
        anything: tuple[AclResources | None, ...] = tuple(patterns) or (None,)
        pairs = list(itertools.product(anything, [_operation(text) for text in operations] or [ANY]))
    return [
        Rule(pattern, operation, principal, permission, host)
        for (pattern, operation), (permission, principal), host in itertools.product(
            pairs, principals, options.hosts or (any_host,)
        )
    ]


def _conveniences(patterns: list[AclResources], producer: bool, consumer: bool) -> Iterator[tuple[AclResources, str]]:
    """Yield the rights of a producer and of a consumer, as kafka-acls defines them."""
    needed: dict[str, tuple[str, ...]] = {}
    lacking = {"TOPIC"}
    if producer:
        needed |= {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
    if consumer:
        needed |= {"TOPIC": (*needed.get("TOPIC", ()), "READ", "DESCRIBE"), "GROUP": ("READ",)}
        lacking.add("GROUP")
    lacking -= {pattern.type for pattern in patterns}
    if lacking:
        option = f"--{sorted(lacking)[-1].lower()}"
        raise Failure(f"{'--consumer' if consumer else '--producer'} needs {option} NAME.", ExitCode.USAGE)
    for pattern in patterns:
        if pattern.type not in needed:
            wrong = pattern.type.lower().replace("_", "-")
            raise Failure(f"--{wrong} does not belong to these rights: give --operation.", ExitCode.USAGE)
        yield from ((pattern, operation) for operation in needed[pattern.type])


def _operation(text: str) -> str:
    if text.lower().replace("_", "-") not in OPERATIONS:
        raise Failure(f"--operation {text}: give one of {', '.join(OPERATIONS)}.", ExitCode.USAGE)
    return text.upper().replace("-", "_")


def _acl(rule: Rule) -> "ACL":
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

    assert rule.pattern is not None, "`add` requires a resource"
    kind = ACLResourcePatternType.PREFIXED if rule.pattern.is_prefix else ACLResourcePatternType.LITERAL
    resource = ResourcePattern(ResourceType[rule.pattern.type], rule.pattern.name, kind)
    return ACL(rule.principal, rule.host, ACLOperation[rule.operation], ACLPermissionType[rule.permission], resource)


def _filter(rule: Rule, *, matches_names: bool = False) -> "ACLFilter":
    """Return the filter. If `matches_names`, it has every ACL that counts for a resource of that name."""
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
        ResourceType,
    )

    resource = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    if rule.pattern is not None:
        kind = ACLResourcePatternType.PREFIXED if rule.pattern.is_prefix else ACLResourcePatternType.LITERAL
        kind = ACLResourcePatternType.MATCH if matches_names else kind
        resource = ResourcePatternFilter(ResourceType[rule.pattern.type], rule.pattern.name, kind)
    return ACLFilter(
        rule.principal, rule.host, ACLOperation[rule.operation], ACLPermissionType[rule.permission], resource
    )


def _row(acl: "ACL") -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission_type.name,
        "operation": acl.operation.name,
        "resource": acl.resource_pattern.resource_type.name,
        "name": acl.resource_pattern.resource_name,
        "pattern": acl.resource_pattern.pattern_type.name,
        "host": acl.host,
    }


def _text(acl: "ACL") -> str:
    resource = acl.resource_pattern
    pattern = AclResources(
        resource.resource_type.name, resource.resource_name, resource.pattern_type.name == "PREFIXED"
    )
    return _in_words(Rule(pattern, acl.operation.name, acl.principal, acl.permission_type.name, acl.host))


def _in_words(rule: Rule) -> str:
    """Return an ACL as one line: `User:alice ALLOW WRITE TOPIC orders`."""
    assert rule.pattern is not None, "an ACL has a resource"
    prefix = "*" if rule.pattern.is_prefix else ""
    host = "" if rule.host == ANY_HOST else f" from {rule.host}"
    return f"{rule.principal} {rule.permission} {rule.operation} {rule.pattern.type} {rule.pattern.name}{prefix}{host}"
