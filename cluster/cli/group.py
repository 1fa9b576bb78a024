"""`cordwood group`: list, describe, reset, delete and configure groups of all types."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import admin_client, answer, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure, incomplete
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig, Unset, configs_of
from cordwood.cluster.cli.output import note, print_json, print_rows, print_table
from cordwood.storage.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from cordwood.cluster.cli.groups.description import DescribedMember, Description
    from cordwood.cluster.cli.offsets import Offsets

TYPES = ("classic", "consumer", "share")

app = typer.Typer(
    no_args_is_help=True, help="List, describe, reset, delete and configure groups: classic, consumer and share groups."
)

Group = Annotated[str, typer.Argument(metavar="GROUP")]


@app.command(name="list")
def list_groups(
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="|".join(TYPES), help="List only groups of this type."),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """List the groups of all brokers, with their states and types."""
    if type_ is not None and type_ not in TYPES:
        raise Failure(f"--type {type_!r}: give {', '.join(TYPES[:-1])} or {TYPES[-1]}.", ExitCode.USAGE)
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.description import state_text

    with group_client(target_of(servers, command_config)) as client:
        found, reasons = client.list_groups()
    groups = [
        {
            "group": group.group_id,
            "state": state_text(group.group_state),
            "type": group.group_type.lower(),
            "coordinator": broker_id,
        }
        for broker_id, group in sorted(found, key=lambda row: str(row[1].group_id))
        if type_ is None or group.group_type.lower() == type_
    ]
    print_rows(groups, ["GROUP", "STATE", "TYPE", "COORDINATOR"], as_json, "No group was found.")
    if reasons:
        raise incomplete(reasons)


@app.command()
def describe(
    group: Group,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show a group's members and assignments, and its offsets and lag for each partition.

    For a share group, LAG counts the records that are not finished. IN FLIGHT of them have been delivered, and LOCKED
    of those are locked for a member now. DELIVERIES is the highest number of deliveries of a record in flight.
    """
    from cordwood.cluster.cli.groups.description import GroupType

    description = _described(group, servers, command_config)
    if description.type is GroupType.SHARE:
        headings = ["TOPIC", "PARTITION", "START", "LAG", "IN FLIGHT", "LOCKED", "DELIVERIES", "MEMBERS"]
        rows = _share_rows(description, servers, command_config)
    else:
        headings = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"]
        rows = _rows(description, servers, command_config)
        if description.type is GroupType.CONSUMER:
            headings.append("TARGET")
    if as_json:
        print_json(_as_json(description, rows))
    else:
        _print_described(description, headings, rows)


app.command(name="show", hidden=True)(describe)


To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="earliest|latest|OFFSET|TIMESTAMP",
        help=("The new position. A timestamp is ISO 8601 (UTC unless it has a zone) or @ and milliseconds since 1970."),
    ),
]
Topic = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="Reset only this topic; may be repeated. The default is all topics with offsets of the group.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Store the new offsets. Without this option, only show them.")]


@app.command()
def reset(
    group: Group,
    to: To,
    topic: Topic = None,
    execute: Execute = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Reset a group's committed offsets, or a share group's start offsets. It must have no running members.

    Without --execute nothing is changed. A reset of a share group makes all records from the new offset on available
    again, and drops those before it.
    """
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.description import GroupType
    from cordwood.cluster.cli.groups.description import describe as description_of
    from cordwood.cluster.cli.groups.shares import alter_share_offsets, share_offsets
    from cordwood.cluster.cli.offsets import describe_topic, parse_position, partitions_in, resolve

    position, target = parse_position(to, "--to"), target_of(servers, command_config)
    with group_client(target) as client:
        described = description_of(client, group)
        is_share = described is not None and described.type is GroupType.SHARE
        starts = share_offsets(client, group) if is_share else {}
    with admin_client(target) as admin:
        if is_share:
            current = {place: found.start for place, found in starts.items()}
        else:
            current = dict(_committed(admin, group))
        if topic:
            names = [name for wanted in topic for name in partitions_in(describe_topic(admin, wanted))]
        else:
            names = _still_there(admin, sorted(current))
        if not names:
            kind = "" if is_share else "committed "
            raise Failure(f"group {group!r} has no {kind}offsets: name the topic with --topic.")
        targets = resolve(admin, position, names)
        if execute and not is_share:
            _move(admin, group, targets)
    if execute and is_share:
        assert described is not None
        if described.members:
            raise _has_members(group)
        with group_client(target) as client:
            alter_share_offsets(client, group, targets)
    _print_reset(group, names, current, targets, execute, as_json)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="One or more groups.")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Delete only the group's offsets of this topic; may be repeated."),
    ] = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the group does not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups with their offsets, or only the offsets of topics. A group must have no running members.

    Asks for confirmation on a terminal.
    """
    what = f"the offsets of {', '.join(topic)} of {', '.join(groups)}" if topic else ", ".join(groups)
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.deletion import delete_group, delete_offsets
    from cordwood.cluster.cli.groups.description import describe as description_of
    from cordwood.cluster.cli.groups.description import no_such_group

    with group_client(target_of(servers, command_config)) as client:
        for group in groups:
            described = description_of(client, group) if topic else None
            if topic and described is not None:
                delete_offsets(client, described, topic)
                typer.echo(f"{group}: offsets deleted")
            elif not topic and delete_group(client, group):
                typer.echo(f"{group}: deleted")
            elif if_exists:
                typer.echo(f"{group}: missing")
            else:
                raise no_such_group(group)


@app.command()
def config(
    group: Group,
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Set this config; may be repeated."),
    ] = None,
    unset: Unset = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the configs of a group, or change them. The group need not exist yet."""
    changes = configs_of(configs, "share.record.lock.duration.ms=60000")
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.configs import alter_group_configs, group_configs

    with group_client(target_of(servers, command_config)) as client:
        if changes or unset:
            alter_group_configs(client, group, changes, unset or [])
        rows = group_configs(client, group)
    print_rows(rows, ["KEY", "VALUE", "SOURCE"], as_json, "Groups have no configs in this cluster.")


def _described(group: str, servers: str, command_config: Any) -> "Description":
    """Describe a group. One that has only committed offsets is an empty classic group. Raises Failure."""
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.description import describe as description_of
    from cordwood.cluster.cli.groups.description import no_such_group

    with group_client(target_of(servers, command_config)) as client:
        found = description_of(client, group)
    if found is None:
        raise no_such_group(group)
    return found


def _rows(description: "Description", servers: str, command_config: Any) -> list[dict[str, Any]]:
    """Return the partitions of a classic or consumer group, with committed offsets and lag."""
    from cordwood.cluster.cli.groups.description import GroupType
    from cordwood.cluster.cli.offsets import readable_ends
    from cordwood.cluster.operations.isolation import IsolationLevel

    owners, targets = description.owners, description.targets
    with admin_client(target_of(servers, command_config)) as admin:
        committed = _committed(admin, description.group)
        names = sorted(committed.keys() | owners.keys() | targets.keys())
        # As in Kafka's tool: a consumer with read_uncommitted may have read records of open transactions.
        ends = readable_ends(admin, _still_there(admin, names), IsolationLevel.READ_UNCOMMITTED)
    rows = []
    for name in names:
        row: dict[str, Any] = {
            "topic": name.topic,
            "partition": name.partition,
            "committed": committed.get(name),
            "end": ends.get(name),
            "lag": ends[name] - committed[name] if name in ends and name in committed else None,
            "member": _only(owners.get(name)),
        }
        if description.type is GroupType.CONSUMER:
            row["target"] = _only(targets.get(name))
        rows.append(row)
    return rows


def _share_rows(description: "Description", servers: str, command_config: Any) -> list[dict[str, Any]]:
    """Return the partitions of a share group, with start offsets, lag and records in flight."""
    from cordwood.cluster.cli.groups.client import group_client
    from cordwood.cluster.cli.groups.shares import in_flight, share_offsets

    with group_client(target_of(servers, command_config)) as client:
        offsets = share_offsets(client, description.group)
        names = sorted(offsets.keys() | description.owners.keys())
        flights = in_flight(client, description.group, names)
    rows = []
    for name in names:
        found, flight = offsets.get(name), flights.get(name)
        rows.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "start": None if found is None else found.start,
                "lag": None if found is None else found.lag,
                "in_flight": None if flight is None else flight.in_flight,
                "locked": None if flight is None else flight.acquired,
                "deliveries": None if flight is None else flight.delivery_count_max,
                "members": description.owners.get(name, []),
            }
        )
    return rows


def _only(members: list[str] | None) -> str | None:
    return members[0] if members else None


def _committed(admin: "AdminClient", group: str) -> "Offsets":
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

    try:
        found = answer(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {
        TopicPartition(part.topic, part.partition): part.offset for part in found.topic_partitions if part.offset >= 0
    }


def _still_there(admin: "AdminClient", names: "list[TopicPartition]") -> "list[TopicPartition]":
    """Return the partitions whose topics have not been deleted since the group committed."""
    topics = admin.list_topics(timeout=20).topics
    return [name for name in names if name.topic in topics and name.partition in topics[name.topic].partitions]


def _move(admin: "AdminClient", group: str, targets: "Offsets") -> None:
    import confluent_kafka
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

    wanted = [confluent_kafka.TopicPartition(name.topic, name.partition, offset) for name, offset in targets.items()]
    try:
        moved = answer(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group])
        errors = [part.error for part in moved.topic_partitions if part.error is not None]
    except KafkaException as error:
        errors = [error.args[0]]
    # A group with members takes a commit from outside for one of an unknown member.
    if any(error.code() in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID) for error in errors):
        raise _has_members(group)
    if errors:
        raise KafkaException(errors[0])


def _has_members(group: str) -> Failure:
    return Failure(f"group {group!r} has running members: stop them, then reset it.")


def _print_reset(
    group: str,
    names: list[TopicPartition],
    current: "dict[TopicPartition, int | None]",
    targets: "Offsets",
    executed: bool,
    as_json: bool,
) -> None:
    rows = [
        {"topic": name.topic, "partition": name.partition, "committed": current.get(name), "new": targets[name]}
        for name in names
    ]
    if as_json:
        print_json({"group": group, "executed": executed, "partitions": rows})
        return
    print_table(["TOPIC", "PARTITION", "CURRENT", "NEW"], [list(row.values()) for row in rows])
    if not executed:
        note("Nothing was changed: add --execute to store the new offsets.")


def _as_json(description: "Description", rows: list[dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "group": description.group,
        "type": description.type.value,
        "state": description.state,
        "assignor": description.assignor,
        "coordinator": description.coordinator.broker_id,
    }
    if description.group_epoch is not None:
        described |= {"group_epoch": description.group_epoch, "assignment_epoch": description.assignment_epoch}
    return {**described, "members": list(map(_member_json, description.members)), "partitions": rows}


def _member_json(member: "DescribedMember") -> dict[str, Any]:
    described: dict[str, Any] = {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
    }
    if member.epoch is not None:
        described |= {"epoch": member.epoch, "topics": list(member.topics or ()), "regex": member.regex}
    return described


def _print_described(description: "Description", headings: list[str], rows: list[dict[str, Any]]) -> None:
    where = description.coordinator
    epochs = ""
    if description.group_epoch is not None:
        epochs = f", epoch {description.group_epoch}"
        if description.assignment_epoch != description.group_epoch:
            epochs += f" (assignment of epoch {description.assignment_epoch})"
    assignor = f", assignor {description.assignor}" if description.assignor else ""
    members = "1 member" if len(description.members) == 1 else f"{len(description.members)} members"
    typer.echo(
        f"{description.group}: {description.type.value} group, {description.state}, {members}"
        f"{epochs}{assignor}, coordinator: broker {where.broker_id} at {where.host}:{where.port}"
    )
    for member in description.members:
        static = f", static as {member.instance_id}" if member.instance_id else ""
        epoch = "" if member.epoch is None else f", epoch {member.epoch}"
        moving = (
            ", assignment in progress"
            if member.target is not None and set(member.target) != set(member.assigned)
            else ""
        )
        typer.echo(f"  {member.member_id} ({member.client_id} at {member.host}{static}{epoch}{moving})")
    if rows:
        print_table(headings, [list(row.values()) for row in rows])
