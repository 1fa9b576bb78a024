"""`cordwood partition`: leader elections and reassignment of replicas."""

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cluster.cli.client import Target, admin_client, answer, failure_of, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import DEFAULT_SERVERS, INT32_MAX, AsJson, BootstrapServers, CommandConfig
from cordwood.cluster.cli.output import note, print_json, print_rows, size_text

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from kafka import KafkaAdminClient, TopicPartition

POLL_S = 0.5
WHAT_UNCLEAN_MEANS = (
    "An unclean election elects a leader that lacks acknowledged records. The missing records are lost"
    " permanently, although producers got an acknowledgement and consumers may have read them. Use it"
    " only when no in-sync replica can be recovered."
)
_MOVE_DIR_REFUSALS = {
    "LogDirNotFoundError": "the broker has no such entry in log.dirs",
    "KafkaStorageError": "the log directory is offline",
    "ReplicaNotAvailableError": "the broker has no replica of the partition; one that comes gets this directory",
    "InvalidRequestError": "the cluster's metadata.version is too low: run `cordwood feature upgrade`",
}
"""By error of AlterReplicaLogDirs."""

app = typer.Typer(no_args_is_help=True, help="Elect leaders, and move replicas to other brokers.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def elect(
    topic: Topic,
    partitions: Annotated[
        list[int] | None,
        typer.Argument(metavar="PARTITION", min=0, max=INT32_MAX, help="The default is all partitions of the topic."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect an out-of-sync replica, which lacks acknowledged records, where no other replica can lead.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation of an unclean election.")
    ] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Elect the preferred leader of each partition, which is the first of its replicas.

    With --unclean, elect an out-of-sync replica for partitions without a leader. This loses records, so the
    command asks for confirmation.
    """
    if unclean and not yes:
        _confirm_unclean()
    target = target_of(servers, command_config)
    with admin_client(target) as admin:
        from confluent_kafka import ElectionType, TopicPartition

        from cordwood.cluster.cli.offsets import describe_topic, partitions_in

        chosen = partitions or [name.partition for name in partitions_in(describe_topic(admin, topic))]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        outcomes = answer(admin.elect_leaders(kind, [TopicPartition(topic, index) for index in chosen]))
        errors = {part.partition: error for part, error in outcomes.items()}
    _report_elections(topic, errors, target, as_json)


@app.command()
def move(
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=INT32_MAX)],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="ID,ID,…", help="The brokers of the new replicas; the first is the preferred leader."
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel a running move and restore the old replicas.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the new replicas are in sync.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Move a partition's replicas to other brokers, or change their number, while clients use it.

    The old replicas are removed once the new ones are in sync.
    """
    if (to is None) != cancel:
        raise Failure("give either --to with the brokers of the new replicas, or --cancel.", ExitCode.USAGE)
    replicas = None if to is None else _broker_ids(to)
    from cordwood.cluster.cli.admin import cluster_admin

    with cluster_admin(target_of(servers, command_config)) as admin:
        from kafka import TopicPartition

        where = TopicPartition(topic, partition)
        _reassign(admin, where, replicas)
        while wait and where in admin.list_partition_reassignments([where]):
            time.sleep(POLL_S)
    done = "moved" if wait else "is being moved: see `cordwood partition list-moves`"
    typer.echo(f"{topic}-{partition}: {'the move was cancelled' if cancel else done}")


@app.command(name="move-dir")
def move_dir(
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, max=INT32_MAX)],
    broker: Annotated[
        int, typer.Option("--broker", metavar="ID", min=0, max=INT32_MAX, help="The broker that has the replica.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIRECTORY", help="One of the broker's log.dirs.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the replica is moved.")] = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Move a replica to another log directory of its broker, while clients use it.

    The directory that it is in cancels a move.
    """
    from cordwood.cluster.cli.admin import cluster_admin

    with cluster_admin(target_of(servers, command_config)) as admin:
        _move_to_directory(admin, topic, partition, broker, to)
        while wait and _is_moving_to_directory(admin, topic, partition, broker):
            time.sleep(POLL_S)
    typer.echo(f"{topic}-{partition} on broker {broker}: {'moved' if wait else 'is being moved'} to {to}")


@app.command(name="list-moves")
def list_moves(
    as_json: AsJson = False, servers: BootstrapServers = DEFAULT_SERVERS, command_config: CommandConfig = None
) -> None:
    """List the partitions whose replicas are being moved, with the bytes and minutes that are left.

    The rate is measured for a second.
    """
    from cordwood.cluster.cli.admin import cluster_admin
    from cordwood.cluster.cli.moves import ongoing_moves

    with cluster_admin(target_of(servers, command_config)) as admin:
        moves = ongoing_moves(admin)
    if as_json:
        print_json([asdict(move) for move in moves])
        return
    rows = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": move.replicas,
            "adding": move.adding,
            "removing": move.removing,
            "left": None if move.bytes_left is None else size_text(move.bytes_left),
            "rate": None if move.bytes_per_second is None else f"{size_text(move.bytes_per_second)}/s",
            "minutes": move.minutes_left,
        }
        for move in moves
    ]
    headings = ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "LEFT", "RATE", "MINUTES"]
    print_rows(rows, headings, as_json, "No partition is being moved.")


@app.command()
def throttle(
    rate: Annotated[
        str | None,
        typer.Argument(metavar="[RATE]", help="Bytes per second of each broker: 5000000, 500KiB, 20MiB; or off."),
    ] = None,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Limit the rate at which moves copy replicas, or show the limit.

    The limit applies to each broker, both to sent and to received bytes. Replicas that were there before a move are
    never limited.
    """
    from cordwood.cluster.cli.moves import parse_rate, set_throttle, throttle_of

    target = target_of(servers, command_config)
    with admin_client(target) as admin:
        if rate is not None:
            set_throttle(admin, parse_rate(rate))
        now = throttle_of(admin)
    typer.echo("Moves are not throttled." if now is None else f"Moves are throttled to {size_text(now)}/s a broker.")


def _confirm_unclean() -> None:
    if not sys.stdin.isatty():
        raise Failure(f"{WHAT_UNCLEAN_MEANS} Add --yes to confirm.", ExitCode.USAGE)
    note(WHAT_UNCLEAN_MEANS)
    typer.confirm("Elect an out-of-sync leader?", abort=True, err=True)


def _report_elections(topic: str, errors: "dict[int, KafkaError | None]", target: Target, as_json: bool) -> None:
    """Print the result of each partition. Raises Failure for those that were refused."""
    from confluent_kafka import KafkaError

    results = {}
    for partition, error in sorted(errors.items()):
        if error is None:
            results[partition] = "elected"
        elif error.code() == KafkaError.ELECTION_NOT_NEEDED:
            results[partition] = "not needed"
        else:
            results[partition] = failure_of(error, target).sentence
    refused = {partition for partition, error in errors.items() if results[partition] not in ("elected", "not needed")}
    if as_json:
        print_json(
            [
                {"topic": topic, "partition": partition, "ok": partition not in refused, "result": result}
                for partition, result in results.items()
            ]
        )
    else:
        for partition in results.keys() - refused:
            typer.echo(f"{topic}-{partition}: {results[partition]}")
    if refused:
        raise Failure("; ".join(f"{topic}-{partition}: {results[partition]}" for partition in sorted(refused)))


def _broker_ids(text: str) -> list[int]:
    """Parse `1,2,3`. Raises Failure with exit code 2."""
    words = [word.strip() for word in text.split(",")]
    ids = [int(word) for word in words if word.isdecimal() and len(word) <= len(str(INT32_MAX))]
    if len(set(ids)) < len(words) or max(ids) > INT32_MAX:
        raise Failure(f"--to {text!r}: give the numbers of different brokers, such as 1,2,3.", ExitCode.USAGE)
    return ids


def _reassign(admin: "KafkaAdminClient", where: "TopicPartition", replicas: list[int] | None) -> None:
    """Begin a reassignment, or cancel it for None. Raises Failure for a refusal."""
    from kafka import errors

    refusal = admin.alter_partition_reassignments({where: replicas}).get(where)
    if refusal is None:
        return
    in_words = {
        errors.UnknownTopicOrPartitionError: "the partition does not exist",
        errors.InvalidReplicationAssignmentError: "at least one of these brokers is not registered",
        errors.NoReassignmentInProgressError: "the partition is not being moved",
    }
    reason = in_words.get(refusal, f"the broker refused: {refusal.description or refusal.__name__}")
    raise Failure(f"{where.topic}-{where.partition}: {reason}.")


def _move_to_directory(admin: "KafkaAdminClient", topic: str, partition: int, broker: int, directory: str) -> None:
    """Ask the broker to move its replica. Raises Failure if it refuses."""
    from kafka.errors import UnknownBrokerIdError

    try:
        [error] = admin.alter_replica_log_dirs({(topic, partition, broker): directory}).values()
    except UnknownBrokerIdError:
        raise Failure(f"broker {broker} does not run: see `cordwood broker list`.") from None
    if error.errno:
        reason = _MOVE_DIR_REFUSALS.get(error.__name__, error.__name__)
        raise Failure(f"{topic}-{partition} on broker {broker} was not moved: {reason}.", ExitCode.FAILED)


def _is_moving_to_directory(admin: "KafkaAdminClient", topic: str, partition: int, broker: int) -> bool:
    """Return whether the broker still copies the replica."""
    [answer] = admin.describe_log_dirs(brokers=[broker])
    return any(
        row["is_future_key"]
        for directory in answer["log_dirs"]
        for shown in directory["topics"]
        if shown["name"] == topic
        for row in shown["partitions"]
        if row["partition_index"] == partition
    )
