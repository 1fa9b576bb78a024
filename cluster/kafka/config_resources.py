"""Config resources: lookup and optimistic-concurrency updates of their configs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import client_metrics, topic_configs
from cordwood.cluster.config.client_metrics import ClientMetricsConfig
from cordwood.cluster.config.rows import BrokerConfig, broker_config
from cordwood.cluster.config.settings import SETTINGS
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC
from cordwood.cluster.metadata.acls import AclOperation
from cordwood.cluster.metadata.commands import AlterConfigs, ConfigChange, ResourceType
from cordwood.cluster.metadata.config_values import Kind
from cordwood.cluster.metadata.cordons import ALL_DIRECTORIES, CORDONED, directories_of
from cordwood.cluster.metadata.image import ALL_BROKERS, EMPTY, Image
from cordwood.cluster.proposals import topics
from cordwood.cluster.proposals.admission import check_changes
from cordwood.cluster.proposals.texts import check_texts

CONFIGS_MAX = 200
_ATTEMPTS_MAX = 5

Wanted = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Maps the current configs of a resource to the wanted ones. Raises Refused."""


def type_of(number: int) -> ResourceType:
    """Return the resource type. Raises Refused for Kafka's other types (broker loggers)."""
    try:
        return ResourceType(number)
    except ValueError:
        raise Refused(ErrorCode.invalid_request, f"Resources of type {number} have no configs.") from None


def require_on(number: int, name: str, operation: AclOperation, call: Call) -> None:
    """Check that the client may do an operation on a config resource. Raises Refused."""
    if type_of(number) is ResourceType.TOPIC:
        call.require(operation, TOPIC, name)
    elif type_of(number) is ResourceType.GROUP:
        call.require(operation, GROUP, name)
    else:
        call.require(operation, CLUSTER)


def topic_own(name: str, image: Image) -> Mapping[str, str]:
    """Return the configs set for a topic. Raises Refused."""
    if not name:
        raise Refused(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    topics.check_name(name)
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")
    return topic.configs


def check_size(configs: Collection[Any]) -> None:
    """Check the number of configs of one resource, and the length of their values. Raises Refused."""
    if len(configs) > CONFIGS_MAX:
        raise Refused(
            ErrorCode.invalid_request, f"More than {CONFIGS_MAX} configs of one resource: send fewer in one request"
        )
    check_texts(config.value for config in configs if config.value is not None)


def check_broker(name: str, image: Image) -> None:
    """Check that a broker can be configured; "" stands for all brokers. Raises Refused."""
    if name == ALL_BROKERS or name in map(str, image.brokers):
        return
    if name.isascii() and name.isdigit():
        raise Refused(ErrorCode.invalid_request, f"No broker is registered with the id {name}.")
    raise Refused(ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}")


async def alter_all(
    resources: Sequence[Any], change: Callable[[Any], Wanted], response: type[Any], call: Call, *, validate_only: bool
) -> tuple[Any, ...]:
    """Alter each resource of a request with `change`, which may raise Refused. Return one `response` for each."""
    times: Counter[tuple[int, str]] = Counter()
    async for resource in call.turns.each(resources):
        times[resource.resource_type, resource.resource_name] += 1

    async def altered(resource: Any) -> Any:
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.none, None
        try:
            if times[kind, name] > 1:
                raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
            require_on(kind, name, ALTER_CONFIGS, call)
            check_size(resource.configs)
            await _alter(kind, name, change(resource), call, validate_only=validate_only)
        except Refused as refusal:
            code, message = refusal.code, refusal.message
        return response(error_code=code, error_message=message, resource_type=kind, resource_name=name)

    return tuple(await call.turns.gather(altered, resources))


async def _alter(number: int, name: str, wanted: Wanted, call: Call, *, validate_only: bool) -> None:
    """Change a resource's configs to the wanted ones by compare-and-set. Raises Refused.

    After a concurrent change, `wanted` is called again with the newer configs, so that the other change is kept.
    """
    resource = type_of(number)
    for _ in range(_ATTEMPTS_MAX):
        image = call.services.quorum.image
        broker = broker_config(call.services.settings, image)
        own = _own(resource, name, image)
        new = wanted(own)
        changes = tuple(
            ConfigChange(key, own.get(key), new.get(key))
            for key in dict.fromkeys([*own, *new])
            if own.get(key) != new.get(key)
        )
        check_changes(resource, name, own, changes, broker)
        if resource is ResourceType.BROKER and any(change.key == CORDONED for change in changes):
            _check_cordons(name, new, call)
        if validate_only or not changes:
            return
        try:
            await propose(AlterConfigs(resource, name, changes), call)
            return
        except Refused as refusal:
            if refusal.code is not ErrorCode.invalid_update_version:
                raise
    raise Refused(ErrorCode.request_timed_out, "The configs were changed by other requests meanwhile: try again.")


def _check_cordons(name: str, wanted: Mapping[str, str], call: Call) -> None:
    """Check that a broker has the directories that are to be cordoned, as Kafka does. Raises Refused.

    Other brokers know only their number: one that is misspelt would count for one that takes replicas.
    """
    directories = directories_of(wanted.get(CORDONED))
    settings = call.services.settings
    if ALL_DIRECTORIES in directories or not directories:
        return
    if name != str(settings.node_id):
        message = f"Send {CORDONED} with the names of directories to the broker itself: only it knows its log.dirs."
        raise Refused(ErrorCode.invalid_request, message)
    if unknown := sorted(directories - {*settings.log_dirs}):
        message = f"All entries in {CORDONED} must be in log.dirs, and these are not: {', '.join(unknown)}."
        raise Refused(ErrorCode.invalid_request, message)


def list_of(number: int, name: str, key: str, own: Mapping[str, str], call: Call) -> tuple[str, ...]:
    """Return the current items of a list config. Raises Refused if its type is not LIST."""
    broker = broker_config(call.services.settings, call.services.quorum.image)
    resource = type_of(number)
    if resource is ResourceType.CLIENT_METRICS:
        return _items(own.get(key, ""), client_metrics.CLIENT_METRICS_CONFIGS.get(key), key)
    if resource is ResourceType.GROUP:
        return _items("", None, key)
    is_topic = resource is ResourceType.TOPIC
    row = (topic_configs.TOPIC_CONFIGS if is_topic else SETTINGS).get(key)
    if row is None or row.type.kind is not Kind.LIST:
        raise Refused(ErrorCode.invalid_config, f"Can't append to or subtract from key {key}: its type is not LIST.")
    if is_topic:
        value = topic_configs.value_of(key, own, broker)
    elif key in own:
        value = row.type.parse(own[key])
    else:
        # The config of all brokers falls back to the static settings, never to one broker's dynamic config.
        layers = broker if name != ALL_BROKERS else BrokerConfig(broker.settings)
        value = layers.found((key,))[1]
    assert isinstance(value, tuple), f"{key} is a list"
    return value


def _items(text: str, config: ClientMetricsConfig | None, key: str) -> tuple[str, ...]:
    if config is None or config.type.kind is not Kind.LIST:
        raise Refused(ErrorCode.invalid_config, f"Can't append to or subtract from key {key}: its type is not LIST.")
    value = config.type.parse(text)
    assert isinstance(value, tuple), f"{key} is a list"
    return value


def _own(resource: ResourceType, name: str, image: Image) -> Mapping[str, str]:
    if resource is ResourceType.TOPIC:
        return topic_own(name, image)
    if resource is ResourceType.CLIENT_METRICS:
        return image.client_metrics.get(name, EMPTY)
    if resource is ResourceType.GROUP:
        return image.group_configs.get(name, EMPTY)
    check_broker(name, image)
    return image.broker_configs.get(name, EMPTY)
