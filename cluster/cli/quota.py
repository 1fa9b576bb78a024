"""`cordwood quota`: client quotas, which limit what users, client ids and addresses may do."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cordwood.cluster.cli.client import blocking_connection, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.option_groups import with_groups
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_rows

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)(KiB|MiB|GiB|)")
USER, CLIENT_ID, IP = "user", "client-id", "ip"
LIMITS = (
    "producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage (of the event loop),"
    " controller_mutation_rate (partitions per second) or, of addresses, connection_creation_rate"
)

app = typer.Typer(no_args_is_help=True, help="List, set and remove quotas of users, client ids and addresses.")

Entity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """Whose quota it is."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user, as ANONYMOUS.")] = None
    client_id: Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")] = None
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address of clients.")] = None
    default_user: Annotated[bool, typer.Option("--default-user", help="Every user without its own quota.")] = False
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="Every client id without its own quota.")
    ] = False
    default_ip: Annotated[bool, typer.Option("--default-ip", help="Every address without its own quota.")] = False


@app.command(name="list")
def list_quotas(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the quotas. Each broker counts for itself, so a client that uses all brokers has its limit on each."""
    rows = [
        {
            "user": _shown(entity, USER),
            "client_id": _shown(entity, CLIENT_ID),
            "ip": _shown(entity, IP),
            "limits": limits if as_json else [f"{key}={value:.15g}" for key, value in limits.items()],
        }
        for entity, limits in sorted(_quotas(servers, command_config), key=lambda quota: str(quota[0]))
    ]
    headings = ["USER", "CLIENT ID", "ADDRESS", "LIMITS"]
    print_rows(rows, headings, as_json, "There are no quotas. Set one with `cordwood quota set --user NAME KEY=VALUE`.")


@app.command(name="set")
@with_groups
def set_quota(
    limits: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help=f"One or more limits: {LIMITS}.")],
    owner: EntityOptions,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Set limits. They are in force at once, for connections that are open too.

    A user and a client id together limit that client of that user. VALUE may end with KiB, MiB or GiB.
    """
    entity = _entity(owner)
    changes: dict[str, float | None] = dict(map(_limit, limits))
    _alter(entity, changes, servers, command_config)
    typer.echo(f"{_name(entity)}: {', '.join(f'{key}={value:.15g}' for key, value in changes.items())}")


@app.command()
@with_groups
def remove(
    *,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]…", help="The limits to remove; without any, all of them.")
    ] = None,
    owner: EntityOptions,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Remove limits. A throttled client continues at once, or under the next quota that applies to it."""
    entity = _entity(owner)
    found = dict(_quotas(servers, command_config)).get(entity)
    if found is None:
        raise Failure(f"there is no quota of {_name(entity)}. `cordwood quota list` shows all quotas.")
    if missing := [key for key in keys or () if key not in found]:
        raise Failure(f"{_name(entity)} has no limit {missing[0]}: it has {', '.join(found)}.")
    _alter(entity, dict.fromkeys(keys or found), servers, command_config)
    typer.echo(f"{_name(entity)}: {', '.join(keys or found)} removed")


def _entity(options: EntityOptions) -> Entity:
    """Return the entity that the options name. Raises Failure with exit code 2."""
    given = (
        (USER, options.user, options.default_user),
        (CLIENT_ID, options.client_id, options.default_client_id),
        (IP, options.ip, options.default_ip),
    )
    parts: dict[str, str | None] = {}
    for kind, name, is_default in given:
        if name is not None and is_default:
            raise Failure(f"give either --{kind} or --default-{kind}.", ExitCode.USAGE)
        if name is not None or is_default:
            parts[kind] = name
    if not parts or (IP in parts and len(parts) > 1):
        raise Failure(
            "say whose quota: --user or --default-user, --client-id or --default-client-id, or both; or --ip or"
            " --default-ip alone.",
            ExitCode.USAGE,
        )
    return tuple(sorted(parts.items()))


def _limit(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    found = NUMBER.fullmatch(value)
    if not equals or found is None:
        raise Failure(f"{text!r} is not a limit: write KEY=VALUE, as producer_byte_rate=10MiB.", ExitCode.USAGE)
    return key, float(found[1]) * UNITS[found[2]]


def _quotas(servers: str, command_config: Any) -> list[tuple[Entity, dict[str, float]]]:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest

    with blocking_connection(target_of(servers, command_config)) as connection:
        found = connection.ask(DescribeClientQuotasRequest(components=(), strict=False))
    _check(found)
    return [
        (
            tuple(sorted((part.entity_type, part.entity_name) for part in row.entity)),
            {limit.key: limit.value for limit in row.values},
        )
        for row in found.entries
    ]


def _alter(entity: Entity, changes: dict[str, float | None], servers: str, command_config: Any) -> None:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
    from kio.static.primitive import f64

    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
    ops = tuple(OpData(key=key, value=f64(value or 0.0), remove=value is None) for key, value in changes.items())
    request = AlterClientQuotasRequest(entries=(EntryData(entity=parts, ops=ops),), validate_only=False)
    with blocking_connection(target_of(servers, command_config)) as connection:
        (altered,) = connection.ask(request).entries
    _check(altered)


def _check(answer: Any) -> None:
    """Raise Failure for an error code, with the broker's sentence if it has one."""
    from kio.schema.errors import ErrorCode

    if answer.error_code is not ErrorCode.none:
        reason = answer.error_message or answer.error_code.name.upper()
        raise Failure(f"the broker refused: {reason.rstrip('.')}.")


def _name(entity: Entity) -> str:
    return ", ".join(f"{kind} {name}" if name is not None else f"default {kind}" for kind, name in reversed(entity))


def _shown(entity: Entity, kind: str) -> str | None:
    parts = dict(entity)
    if kind not in parts:
        return None
    return "(default)" if (name := parts[kind]) is None else name
