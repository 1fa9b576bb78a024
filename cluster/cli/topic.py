"""`cordwood topic`: create, list, describe, alter and delete topics."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cluster.cli.client import admin_client, answer, no_such_topic, target_of
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.options import (
    DEFAULT_SERVERS,
    PARTITIONS_MAX,
    REPLICAS_MAX,
    AsJson,
    BootstrapServers,
    CommandConfig,
    Unset,
    configs_of,
)
from cordwood.cluster.cli.output import print_json, print_rows, print_table

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, ConfigEntry, TopicDescription

    from cordwood.cluster.cli.offsets import Offsets

FLUSH_POLICY_IN_WORDS = {
    "group": "acknowledged records are on disk (fdatasync) before the ack",
    "os": "acknowledged records may be lost in a power cut: the operating system writes them to disk later",
}

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One or more topics.")]
ConfigOptions = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config; may be repeated.")
]


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=PARTITIONS_MAX,
            help="Number of partitions; the default is the broker's num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=REPLICAS_MAX,
            help="Number of replicas; the default is the broker's default.replication.factor.",
        ),
    ] = None,
    config: ConfigOptions = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already, and leave it unchanged.")
    ] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Create topics."""
    configs = configs_of(config, "retention.ms=3600000")
    with admin_client(target_of(servers, command_config)) as admin:
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import NewTopic

        wanted = [NewTopic(name, partitions or -1, replication_factor or -1, config=configs) for name in names]
        outcomes = _outcomes(admin.create_topics(wanted))
    results = {}
    for name, error in outcomes.items():
        exists = error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS
        results[name] = "exists" if exists and if_not_exists else _refusal(error) or "created"
    _report(results, ("created", "exists"), as_json)


@app.command(name="list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="List internal topics too, whose names begin with __.")
    ] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """List the topics with their number of partitions and replicas."""
    with admin_client(target_of(servers, command_config)) as admin:
        found = admin.list_topics(timeout=20).topics
    topics = [
        {
            "name": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(part.replicas) for part in topic.partitions.values()), default=0),
            "without_leader": sum(part.leader < 0 for part in topic.partitions.values()),
        }
        for name, topic in sorted(found.items())
        if internal or not name.startswith("__")
    ]
    headings = ["TOPIC", "PARTITIONS", "COPIES", "WITHOUT LEADER"]
    print_rows(topics, headings, as_json, "There are no topics. Create one with `cordwood topic create NAME`.")


@app.command()
def describe(
    names: Names,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Show partitions with leader, in-sync replicas and offsets, the flush policy, and configs that are not default."""
    with admin_client(target_of(servers, command_config)) as admin:
        topics = [_described(admin, name) for name in names]
    if as_json:
        print_json(topics)
        return
    for topic in topics:
        _print_described(topic)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=PARTITIONS_MAX,
            help="The new number of partitions, which must be larger than the current one.",
        ),
    ] = None,
    config: ConfigOptions = None,
    unset: Unset = None,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Change a topic's configs, or add partitions, while clients use it."""
    changes = configs_of(config, "retention.ms=3600000")
    if not (changes or unset or partitions):
        raise Failure("nothing to alter: give --config KEY=VALUE, --unset KEY or --partitions N.", ExitCode.USAGE)
    with admin_client(target_of(servers, command_config)) as admin:
        if changes or unset:
            _alter_configs(admin, name, changes, unset or [])
        if partitions:
            _grow(admin, name, partitions)
    _report({name: "altered"}, ("altered",), as_json)


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    servers: BootstrapServers = DEFAULT_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics and all their records. Asks for confirmation on a terminal."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)
    with admin_client(target_of(servers, command_config)) as admin:
        from confluent_kafka import KafkaError

        outcomes = _outcomes(admin.delete_topics(names))
    results = {}
    for name, error in outcomes.items():
        missing = error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if missing:
            results[name] = "missing" if if_exists else "there is no such topic: see `cordwood topic list`"
        elif error is not None and error.code() == KafkaError.POLICY_VIOLATION:
            results[name] = "a cut pins its records: `cordwood cut list` shows which, `cordwood cut drop` drops it"
        else:
            results[name] = _refusal(error) or "deleted"
    _report(results, ("deleted", "missing"), as_json)


def _outcomes(futures: "dict[str, Future[None]]") -> "dict[str, KafkaError | None]":
    from confluent_kafka import KafkaException

    outcomes: dict[str, KafkaError | None] = {}
    for name, future in futures.items():
        try:
            answer(future)
            outcomes[name] = None
        except KafkaException as error:
            outcomes[name] = error.args[0]
    return outcomes


def _refusal(error: "KafkaError | None") -> str | None:
    return None if error is None else f"{error.str()} ({error.name()})"


def _report(results: dict[str, str], good: tuple[str, ...], as_json: bool) -> None:
    """Print the result of each topic. Raises Failure for those that were refused."""
    if as_json:
        print_json([{"name": name, "ok": result in good, "result": result} for name, result in results.items()])
    else:
        for name, result in results.items():
            if result in good:
                typer.echo(f"{name}: {result}")
    refused = [f"{name}: {result}" for name, result in results.items() if result not in good]
    if refused:
        raise Failure("; ".join(refused))


def _alter_configs(admin: "AdminClient", name: str, changes: dict[str, str], unset: list[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    error = _outcomes({name: admin.incremental_alter_configs([resource])[resource]})[name]
    _raise_refused(name, error)


def _grow(admin: "AdminClient", name: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    _raise_refused(name, _outcomes(admin.create_partitions([NewPartitions(name, partitions)]))[name])


def _raise_refused(name: str, error: "KafkaError | None") -> None:
    from confluent_kafka import KafkaError

    if error is None:
        return
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise no_such_topic(name)
    raise Failure(f"{name}: {_refusal(error)}")


def _described(admin: "AdminClient", name: str) -> dict[str, Any]:
    from cordwood.cluster.cli.offsets import describe_topic, log_starts, partitions_in, readable_ends

    topic = describe_topic(admin, name)
    led = [where for where, part in zip(partitions_in(topic), topic.partitions, strict=True) if part.leader]
    configs = _configs(admin, name)
    policy = configs["flush.policy"].value if "flush.policy" in configs else None
    changed = {
        key: {"value": None if entry.is_sensitive else entry.value, "source": _source(entry)}
        for key, entry in sorted(configs.items())
        if not entry.is_default and _source(entry) != "default_config"
    }
    return {
        "name": name,
        "id": str(topic.topic_id),
        "flush_policy": policy,
        "flush_policy_in_words": FLUSH_POLICY_IN_WORDS.get(policy or ""),
        "configs": changed,
        "partitions": _partitions(topic, log_starts(admin, led), readable_ends(admin, led)),
    }


def _configs(admin: "AdminClient", name: str) -> "dict[str, ConfigEntry]":
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    return dict(answer(admin.describe_configs([resource])[resource]))


def _source(entry: "ConfigEntry") -> str:
    """Return the source of a config, such as `dynamic_topic_config`. The client has a number, its stubs an enum."""
    from confluent_kafka.admin import ConfigSource

    return ConfigSource(entry.source).name.lower()


def _partitions(topic: "TopicDescription", starts: "Offsets", ends: "Offsets") -> list[dict[str, Any]]:
    from cordwood.cluster.cli.offsets import partitions_in

    return [
        {
            "partition": where.partition,
            "leader": partition.leader.id if partition.leader else None,
            "replicas": [node.id for node in partition.replicas],
            "isr": [node.id for node in partition.isr],
            "start": starts.get(where),
            "end": ends.get(where),
        }
        for where, partition in zip(partitions_in(topic), topic.partitions, strict=True)
    ]


def _print_described(topic: dict[str, Any]) -> None:
    typer.echo(f"{topic['name']}  (id {topic['id']})")
    if topic["flush_policy"]:
        typer.echo(f"  flush.policy = {topic['flush_policy']}: {topic['flush_policy_in_words'] or 'unknown value'}")
    for key, config in topic["configs"].items():
        if key != "flush.policy":
            typer.echo(f"  {key} = {config['value']}  ({config['source'].replace('_', ' ')})")
    print_table(
        ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END"],
        [list(part.values()) for part in topic["partitions"]],
    )
