"""`cordwood cut`: cuts, which keep the records of topics as of one moment readable under a name."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import blocking_connection, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from cordwood.client.cut_messages import DescribedCut

from cordwood.storage.types import NEVER_EXPIRES

CREATION_S = 30.0
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LIFETIME = re.compile(r"([1-9][0-9]{0,6})([smhd])")

app = typer.Typer(
    no_args_is_help=True, help="Keep topics as they are now under a name: create, list, show and drop cuts."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the cut.")]


@app.command()
def create(
    name: Name,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.")],
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The time until the cut expires, such as 90s, 30m, 12h or 7d. Without it, the cut stays until it is"
            " dropped.",
        ),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Create a cut of all committed records that the topics have now.

    Retention and compaction remove none of them while the cut exists.
    """
    from cordwood.client.cut_messages import CreateCutRequest

    lifetime_ms = NEVER_EXPIRES if lifetime is None else _lifetime_ms(lifetime)
    with blocking_connection(target_of(servers, command_config), CREATION_S) as connection:
        made = connection.ask(CreateCutRequest(name=name, topics=tuple(topics), lifetime_ms=lifetime_ms))
    _check(made)
    (cut,) = made.cuts
    if as_json:
        print_json(_described(cut))
    else:
        expiry = "" if cut.expires_ms == NEVER_EXPIRES else f", expires {_time(cut.expires_ms)}"
        typer.echo(f"{name}: created, {_offsets(cut)} offsets{expiry}")


@app.command(name="list")
def list_cuts(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the cuts."""
    rows = [
        {
            "name": cut.name,
            "topics": [topic.name for topic in cut.topics],
            "partitions": sum(len(topic.partitions) for topic in cut.topics),
            "offsets": _offsets(cut),
            "created": _time(cut.created_ms),
            "expires": "never" if cut.expires_ms == NEVER_EXPIRES else _time(cut.expires_ms),
        }
        for cut in _found(None, servers, command_config)
    ]
    headings = ["NAME", "TOPICS", "PARTITIONS", "OFFSETS", "CREATED", "EXPIRES"]
    print_rows(rows, headings, as_json, "There are no cuts. Create one with `cordwood cut create NAME TOPIC…`.")


@app.command()
def show(
    name: Name,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the pinned offsets of a cut, from START up to END in each partition."""
    found = _found(name, servers, command_config)
    if not found:
        raise Failure(f"there is no cut {name!r}. `cordwood cut list` shows all cuts.")
    described = _described(found[0])
    if as_json:
        print_json(described)
        return
    typer.echo(f"{name}: created {described['created']}, expires {described['expires'] or 'never'}")
    print_rows(described["partitions"], ["TOPIC", "PARTITION", "START", "END"], as_json=False, if_none="")


@app.command()
def drop(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="One or more cuts.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the cut does not exist.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Drop cuts. Retention and compaction may then remove the records that only they have kept."""
    from kio.schema.errors import ErrorCode

    from cordwood.client.cut_messages import DropCutRequest

    with blocking_connection(target_of(servers, command_config)) as connection:
        for name in names:
            dropped = connection.ask(DropCutRequest(name=name))
            is_missing = dropped.error_code is ErrorCode.resource_not_found
            if is_missing and not if_exists:
                raise Failure(f"there is no cut {name!r}. `cordwood cut list` shows all cuts.")
            if not is_missing:
                _check(dropped)
            typer.echo(f"{name}: {'missing' if is_missing else 'dropped'}")


def _found(name: str | None, servers: str, command_config: Any) -> "tuple[DescribedCut, ...]":
    from cordwood.client.cut_messages import DescribeCutsRequest

    with blocking_connection(target_of(servers, command_config)) as connection:
        answer = connection.ask(DescribeCutsRequest(names=None if name is None else (name,)))
    _check(answer)
    cuts: tuple[DescribedCut, ...] = answer.cuts
    return cuts


def _described(cut: "DescribedCut") -> dict[str, Any]:
    return {
        "name": cut.name,
        "created": _time(cut.created_ms),
        "expires": None if cut.expires_ms == NEVER_EXPIRES else _time(cut.expires_ms),
        "partitions": [
            {"topic": topic.name, "partition": row.partition_index, "start": row.start, "end": row.end}
            for topic in cut.topics
            for row in topic.partitions
        ],
    }


def _offsets(cut: "DescribedCut") -> int:
    """Return the number of pinned offsets: of a compacted topic, not every one has a record."""
    return sum(row.end - row.start for topic in cut.topics for row in topic.partitions)


def _check(answer: Any) -> None:
    """Raise Failure for an error code, with the broker's sentence if it has one."""
    from kio.schema.errors import ErrorCode

    if answer.error_code is not ErrorCode.none:
        reason = getattr(answer, "error_message", None) or answer.error_code.name.upper()
        raise Failure(f"the broker refused: {reason.rstrip('.')}.")


def _lifetime_ms(text: str) -> int:
    found = LIFETIME.fullmatch(text)
    if found is None:
        raise Failure(f"{text!r} is not a time: write it as 90s, 30m, 12h or 7d.", ExitCode.USAGE)
    return int(found[1]) * UNITS_MS[found[2]]


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
