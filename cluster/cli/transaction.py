"""`cordwood transaction`: list and describe transactions, and find and abort hanging ones (KIP-664)."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.admin import PATIENCE_S, answer_of, cluster_admin
from cordwood.cluster.cli.client import target_of
from cordwood.cluster.cli.exits import ExitCode, Failure, incomplete
from cordwood.cluster.cli.open_transactions import (
    coordinated,
    leader_of,
    listed,
    open_in,
    open_transactions,
    producers_of,
    searched,
    write_abort_marker,
)
from cordwood.cluster.cli.option_groups import with_groups
from cordwood.cluster.cli.options import (
    DEFAULT_SERVERS,
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    AsJson,
    BootstrapServers,
    CommandConfig,
)
from cordwood.cluster.cli.output import print_json, print_rows, print_table
from cordwood.cluster.operations.hanging_transactions import (
    CoordinatedTransaction,
    OpenTransaction,
    is_expected,
    why_hanging,
)
from cordwood.cluster.transactions.states import DECIDED, TransactionState
from cordwood.storage.types import TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

MINUTE_MS = 60_000
INVALID_REGULAR_EXPRESSION = 128
"""A code that kafka-python has no class for."""
NONE = -1
OPEN = frozenset(state.value for state in DECIDED | {TransactionState.ONGOING})
PLACE_HEADINGS = ("TOPIC", "PARTITION", "PRODUCER ID", "EPOCH")

app = typer.Typer(
    no_args_is_help=True, help="List and describe transactions, and find and abort those that consumers wait for."
)

OfTopic = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
ProducerIds = Annotated[
    list[int] | None,
    typer.Option(
        "--producer-id", min=0, max=INT64_MAX, help="List only the transactions of this producer id; may be repeated."
    ),
]
Duration = Annotated[
    int | None,
    typer.Option(
        "--duration",
        metavar="MS",
        min=0,
        max=INT64_MAX,
        help="List only transactions that are open for more milliseconds.",
    ),
]
OfPartition = Annotated[int, typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="The partition.")]


@app.command(name="list")
def list_transactions(
    state: Annotated[
        list[TransactionState] | None,
        typer.Option("--state", case_sensitive=False, help="List only transactions in this state; may be repeated."),
    ] = None,
    producer_id: ProducerIds = None,
    duration: Duration = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--transactional-id-pattern",
            metavar="REGEX",
            help="List only transactional ids that match this regular expression (RE2) as a whole.",
        ),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """List the transactional ids of all brokers, with their states and coordinators."""
    from kafka.errors import BrokerResponseError

    states = [each.value for each in state or ()]
    with cluster_admin(target_of(servers, command_config)) as admin:
        try:
            found, reasons = listed(
                admin,
                state_filters=states,
                producer_id_filters=producer_id,
                duration_filter_ms=duration,
                transactional_id_pattern=pattern,
            )
        except BrokerResponseError as error:
            if error.errno != INVALID_REGULAR_EXPRESSION:
                raise
            sentence = f"--transactional-id-pattern {pattern!r} is not a regular expression of RE2."
            raise Failure(sentence, ExitCode.USAGE) from None
    rows = [
        {
            "transactional_id": row.transactional_id,
            "state": row.state.value,
            "producer_id": row.producer_id,
            "coordinator": broker,
        }
        for broker, of_broker in found.items()
        for row in of_broker
    ]
    rows.sort(key=lambda row: str(row["transactional_id"]))
    headings = ["TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"]
    print_rows(rows, headings, as_json, "No transactional id was found.")
    if reasons:
        raise incomplete(reasons)


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID", help="One or more ids.")],
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the state of transactional ids, and the partitions of their open transactions."""
    with cluster_admin(target_of(servers, command_config)) as admin:
        described = [_described(admin, transactional_id) for transactional_id in transactional_ids]
    if as_json:
        print_json(described)
        return
    for each in described:
        _print_described(each)


@app.command(name="describe-producers")
def describe_producers(
    topic: OfTopic,
    partition: OfPartition,
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", min=0, max=INT32_MAX, help="Ask this replica instead of the leader."),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show the producers of a partition, and the first offsets of their open transactions."""
    place = TopicPartition(topic, partition)
    with cluster_admin(target_of(servers, command_config)) as admin:
        leader = leader_of(admin, place)
        producers = producers_of(admin, place, leader if broker is None else broker)
    rows = [
        {
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator_epoch": _known(each.coordinator_epoch),
            "last_sequence": _known(each.last_sequence),
            "last_timestamp": each.last_timestamp,
            "transaction_start_offset": _known(each.current_transaction_start_offset),
        }
        for each in sorted(producers, key=lambda each: int(each.producer_id))
    ]
    if not as_json:
        for row in rows:
            row["last_timestamp"] = _time(row["last_timestamp"])
    headings = ["PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "LAST SEQUENCE", "LAST APPEND", "OPEN FROM"]
    print_rows(rows, headings, as_json, f"{topic}-{partition} has no idempotent or transactional producer.")


@app.command(name="find-hanging")
def find_hanging(
    max_timeout_minutes: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            max=INT32_MAX,
            help="The brokers' transaction.max.timeout.ms, in minutes: younger transactions do not hang.",
        ),
    ] = 15,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Search only this topic.")] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="Search only this partition of --topic."),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker", metavar="ID", min=0, max=INT32_MAX, help="Search only partitions that this broker leads."
        ),
    ] = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Find transactions that are open for longer than any may be, and hold back `read_committed` consumers.

    Searches all partitions, unless options limit the search.
    """
    if partition is not None and topic is None:
        raise Failure("--partition needs --topic.", ExitCode.USAGE)
    max_timeout_ms = max_timeout_minutes * MINUTE_MS
    with cluster_admin(target_of(servers, command_config)) as admin:
        now_ms = _now_ms()
        candidates = [
            found
            for found in open_transactions(admin, searched(admin, topic, partition, broker))
            if now_ms - found.last_timestamp_ms > max_timeout_ms
        ]
        known = coordinated(admin, {found.producer_id for found in candidates})
    rows = []
    for found in candidates:
        reason = why_hanging(found, known.get(found.producer_id), now_ms, max_timeout_ms)
        if reason is not None:
            minutes = (now_ms - found.last_timestamp_ms) // MINUTE_MS
            rows.append({**_fields(found), "minutes": minutes, "reason": reason})
    if not as_json:
        for row in rows:
            row["last_timestamp"] = _time(row["last_timestamp"])
    headings = [*PLACE_HEADINGS, "COORDINATOR EPOCH", "OPEN FROM", "LAST APPEND", "MINUTES", "REASON"]
    print_rows(rows, headings, as_json, "No transaction hangs.")


@dataclass(frozen=True, slots=True)
class NamedTransaction:
    """An open transaction of a partition, by one or more of its properties."""

    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, max=INT64_MAX, help="The transaction that begins at this offset."),
    ] = None
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, max=INT64_MAX, help="The transaction of this producer.")
    ] = None
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", min=0, max=INT16_MAX, help="Only if the producer has this epoch.")
    ] = None

    def matches(self, found: OpenTransaction) -> bool:
        """Return whether a transaction has all properties that are given."""
        return (
            self.start_offset in (None, found.start_offset)
            and self.producer_id in (None, found.producer_id)
            and self.producer_epoch in (None, found.producer_epoch)
        )


@app.command()
@with_groups
def abort(
    topic: OfTopic,
    partition: OfPartition,
    named: NamedTransaction,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch",
            min=0,
            max=INT32_MAX,
            help="The epoch of the marker; the default is that of the last marker.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Abort the transaction even if its coordinator is going to end it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Abort a hanging transaction in one partition, by an abort marker that no coordinator writes.

    A transaction is refused if its coordinator still has it: the coordinator ends it, at the latest after its timeout.
    """
    if named.start_offset is None and named.producer_id is None:
        raise Failure(
            "name the transaction with --start-offset or --producer-id: `cordwood transaction find-hanging` has them.",
            ExitCode.USAGE,
        )
    place = TopicPartition(topic, partition)
    with cluster_admin(target_of(servers, command_config)) as admin:
        found = _chosen(place, open_in(admin, place), named)
        known = coordinated(admin, {found.producer_id}).get(found.producer_id)
        if known is not None and is_expected(found, known) and not force:
            raise _not_hanging(known)
        if not yes and sys.stdin.isatty():
            where = f"{topic}-{partition}, from offset {found.start_offset} on"
            typer.confirm(f"Abort the transaction of producer {found.producer_id} in {where}?", abort=True, err=True)
        # -1 stands for no marker yet: no coordinator has an epoch below 0.
        epoch = max(0, found.coordinator_epoch) if coordinator_epoch is None else coordinator_epoch
        write_abort_marker(admin, found, epoch)
    aborted = found._replace(coordinator_epoch=epoch)
    if as_json:
        print_json(_fields(aborted))
    else:
        typer.echo(f"{topic}-{partition}: aborted the transaction of producer {found.producer_id}")


def _fields(found: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": found.place.topic,
        "partition": found.place.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": _known(found.coordinator_epoch),
        "start_offset": found.start_offset,
        "last_timestamp": found.last_timestamp_ms,
    }


def _not_hanging(known: CoordinatedTransaction) -> Failure:
    return Failure(
        f"the transaction is not hanging: {known.transactional_id!r} is {known.state}, and its coordinator is going to"
        " end it. To abort it in this partition alone, and risk that its other partitions are committed, add --force."
    )


def _described(admin: "KafkaAdminClient", transactional_id: str) -> dict[str, Any]:
    from kafka.errors import TransactionalIdNotFoundError

    try:
        found = answer_of(lambda: admin.describe_transactions([transactional_id]), time.monotonic() + PATIENCE_S)[
            transactional_id
        ]
    except TransactionalIdNotFoundError:
        raise Failure(
            f"there is no transactional id {transactional_id!r}. List them with `cordwood transaction list`."
        ) from None
    # A complete transaction still has its time.
    start_ms = found.transaction_start_time_ms if found.state.value in OPEN else None
    return {
        "transactional_id": transactional_id,
        "state": found.state.value,
        "coordinator": found.coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "start_ms": start_ms,
        "age_ms": None if start_ms is None else max(0, _now_ms() - start_ms),
        "partitions": [
            {"topic": place.topic, "partition": place.partition} for place in sorted(found.topic_partitions)
        ],
    }


def _print_described(found: dict[str, Any]) -> None:
    typer.echo(f"{found['transactional_id']}: {found['state']}, coordinator: broker {found['coordinator']}")
    typer.echo(f"  producer id {found['producer_id']}, epoch {found['producer_epoch']}")
    age = "" if found["age_ms"] is None else f", open since {_time(found['start_ms'])} ({found['age_ms']} ms)"
    typer.echo(f"  timeout {found['timeout_ms']} ms{age}")
    if found["partitions"]:
        print_table(["TOPIC", "PARTITION"], [list(place.values()) for place in found["partitions"]])


def _chosen(place: TopicPartition, open_here: Sequence[OpenTransaction], named: NamedTransaction) -> OpenTransaction:
    """Return the transaction that the options name. Raises Failure."""
    for found in open_here:
        if named.matches(found):
            return found
    raise Failure(
        f"{place.topic}-{place.partition} has no such open transaction: see `cordwood transaction describe-producers"
        f" --topic {place.topic} --partition {place.partition}`."
    )


def _known(number: int) -> int | None:
    return None if number == NONE else number


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
