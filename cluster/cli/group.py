"""`cordwood group`: list, describe and reset consumer groups."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import admin_client, answer, target_of
from cordwood.cluster.cli.exits import Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_json, print_rows, print_table
from cordwood.storage.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

    from cordwood.cluster.cli.offsets import Offsets

app = typer.Typer(no_args_is_help=True, help="List and describe consumer groups, and reset their committed offsets.")

Group = Annotated[str, typer.Argument(metavar="GROUP")]


@app.command(name="list")
def list_groups(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the groups and their states."""
    with admin_client(target_of(servers, command_config)) as admin:
        found = answer(admin.list_consumer_groups(request_timeout=20))
    for error in found.errors:
        note(f"cordwood: the list is incomplete: {error}")
    groups = [
        {"group": group.group_id, "state": group.state.name.lower(), "type": group.type.name.lower()}
        for group in sorted(found.valid, key=lambda group: str(group.group_id))
    ]
    print_rows(groups, ["GROUP", "STATE", "TYPE"], as_json, "There is no consumer group.")


@app.command()
def describe(
    group: Group,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show a group's members, and its committed offset and lag for each partition."""
    with admin_client(target_of(servers, command_config)) as admin:
        from cordwood.cluster.cli.offsets import readable_ends

        description = _describe(admin, group)
        committed = _committed(admin, group)
        if not committed and not description.members and description.state.name != "EMPTY":
            raise _no_such_group(group)
        owners = _owners(description)
        names = sorted(committed.keys() | owners.keys())
        ends = readable_ends(admin, _still_there(admin, names))
    rows = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "committed": committed.get(name),
            "end": ends.get(name),
            "lag": ends[name] - committed[name] if name in ends and name in committed else None,
            "member": owners.get(name),
        }
        for name in names
    ]
    _print_described(group, description, rows, as_json)


@app.command()
def reset(
    group: Group,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="earliest|latest|OFFSET|TIMESTAMP",
            help=(
                "The new committed position. A timestamp is ISO 8601 (UTC unless it has a zone) or @ and"
                " milliseconds since 1970."
            ),
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help=(
                "Reset only this topic; may be repeated. The default is all topics with committed offsets of the group."
            ),
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the new offsets. Without this option, only show them.")
    ] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Reset a group's committed offsets. It must have no running members. Without --execute nothing is changed."""
    from cordwood.cluster.cli.offsets import describe_topic, parse_position, partitions_in, resolve

    position = parse_position(to, "--to")
    with admin_client(target_of(servers, command_config)) as admin:
        committed = _committed(admin, group)
        if topic:
            names = [name for wanted in topic for name in partitions_in(describe_topic(admin, wanted))]
        else:
            names = _still_there(admin, sorted(committed))
        if not names:
            raise Failure(f"group {group!r} has no committed offsets: name the topic with --topic.")
        targets = resolve(admin, position, names)
        if execute:
            _move(admin, group, targets)
    rows = [
        {"topic": name.topic, "partition": name.partition, "committed": committed.get(name), "new": targets[name]}
        for name in names
    ]
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
        return
    print_table(["TOPIC", "PARTITION", "COMMITTED", "NEW"], [list(row.values()) for row in rows])
    if not execute:
        note("Nothing was changed: add --execute to commit the new offsets.")


def _describe(admin: "AdminClient", group: str) -> "ConsumerGroupDescription":
    from confluent_kafka import KafkaError, KafkaException

    try:
        described: ConsumerGroupDescription = answer(admin.describe_consumer_groups([group])[group])
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            raise _no_such_group(group) from None
        raise
    return described


def _no_such_group(group: str) -> Failure:
    return Failure(f"there is no group {group!r}. List the groups with `cordwood group list`.")


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


def _owners(description: "ConsumerGroupDescription") -> "dict[TopicPartition, str]":
    return {
        TopicPartition(part.topic, part.partition): member.member_id
        for member in description.members
        for part in member.assignment.topic_partitions
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
        raise Failure(f"group {group!r} has running members: stop them, then reset it.")
    if errors:
        raise KafkaException(errors[0])


def _print_described(
    group: str, description: "ConsumerGroupDescription", rows: list[dict[str, Any]], as_json: bool
) -> None:
    state = description.state.name.lower()
    coordinator = description.coordinator
    if as_json:
        members = [
            {"member": m.member_id, "instance": m.group_instance_id, "client": m.client_id, "host": m.host}
            for m in description.members
        ]
        print_json(
            {
                "group": group,
                "state": state,
                "assignor": description.partition_assignor,
                "coordinator": coordinator.id if coordinator else None,
                "members": members,
                "partitions": rows,
            }
        )
        return
    where = f"broker {coordinator.id} at {coordinator.host}:{coordinator.port}" if coordinator else "unknown"
    typer.echo(f"{group}: {state}, {len(description.members)} members, coordinator: {where}")
    for member in description.members:
        static = f", static as {member.group_instance_id}" if member.group_instance_id else ""
        typer.echo(f"  {member.member_id} ({member.client_id} at {member.host}{static})")
    if rows:
        print_table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"], [list(row.values()) for row in rows])
