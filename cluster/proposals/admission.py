"""Checks of config changes, and admission of commands that another broker proposes: the same checks as in handlers.

The other broker may run another version, or may not belong to this cluster.
"""

from collections.abc import Mapping, Sequence

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import client_metrics, group_configs, topic_configs
from cordwood.cluster.config.rows import BrokerConfig, broker_config
from cordwood.cluster.config.settings import SETTINGS, Settings
from cordwood.cluster.config.topic_configs import validate
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import (
    AllocateProducerIds,
    AlterConfigs,
    Command,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    RegisterBroker,
    ResourceType,
)
from cordwood.cluster.metadata.image import EMPTY, CommandRefused, Image
from cordwood.cluster.metadata.proposers import Admit
from cordwood.cluster.proposals import topics
from cordwood.cluster.proposals.texts import check_texts

PORT_MAX = 65_535
ENDPOINTS_MAX = 100
PRODUCER_IDS_MAX = 100_000


def admission(settings: Settings) -> Admit:
    """Return the check for a broker with these settings."""

    def admit(command: Command, image: Image) -> None:
        try:
            _check(command, image, broker_config(settings, image))
        except Refused as refusal:
            raise CommandRefused(refusal.code, refusal.message or refusal.code.name) from None

    return admit


def _check(command: Command, image: Image, broker: BrokerConfig) -> None:
    """Raise Refused for a command that the handlers would refuse."""
    match command:
        case RegisterBroker():
            _check_registration(command)
        case CreateTopic():
            topics.check_name(command.name)
            check_texts(value for _, value in command.configs)
            validate(dict(command.configs), broker)
            _check_range(len(command.assignments), 1, topics.PARTITIONS_PER_REQUEST_MAX)
        case CreatePartitions():
            _check_range(len(command.assignments), 1, topics.PARTITIONS_PER_REQUEST_MAX)
        case AlterConfigs():
            _check_configs(command, image, broker)
        case AllocateProducerIds():
            _check_range(command.count, 1, PRODUCER_IDS_MAX)
        case CreateAcls():
            check_texts(text for _, acl in command.acls for text in (acl.on.name, acl.principal, acl.host))
        case _:
            pass


def _check_registration(command: RegisterBroker) -> None:
    _check_range(len(command.listeners), 0, ENDPOINTS_MAX)
    for endpoint in command.listeners:
        check_texts((endpoint.listener, endpoint.host))
        _check_range(endpoint.port, 0, PORT_MAX)
    check_texts((command.rack or "", *command.log_dirs))


def _check_configs(command: AlterConfigs, image: Image, broker: BrokerConfig) -> None:
    own = EMPTY
    if command.resource_type is ResourceType.TOPIC and command.name in image.topics_by_name:
        own = image.topics_by_name[command.name].configs
    if command.resource_type is ResourceType.GROUP:
        own = image.group_configs.get(command.name, EMPTY)
    check_changes(command.resource_type, command.name, own, command.changes, broker)


def check_changes(
    resource: ResourceType, name: str, own: Mapping[str, str], changes: Sequence[ConfigChange], broker: BrokerConfig
) -> None:
    """Validate config changes of a resource. Raises Refused.

    Unchanged configs are not validated: a newer version may have set them.
    """
    check_texts((name, *(change.value or "" for change in changes)))
    if resource is ResourceType.TOPIC:
        topic_configs.validate_changes(own, {change.key: change.value for change in changes}, broker)
        return
    if resource is ResourceType.CLIENT_METRICS:
        client_metrics.check(name, {change.key: change.value for change in changes if change.value is not None})
        return
    if resource is ResourceType.GROUP:
        group_configs.check(name, own, {change.key: change.value for change in changes}, broker)
        return
    for change in changes:
        setting = SETTINGS.get(change.key)
        if setting is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown broker config name: {change.key}")
        if not setting.is_dynamic:
            raise Refused(ErrorCode.invalid_request, f"Cannot update these configs dynamically: [{change.key}]")
        try:
            value = None if change.value is None else setting.type.parse(change.value)
        except ValueError as error:
            message = f"Invalid value {change.value} for configuration {change.key}: it must be {error}."
            raise Refused(ErrorCode.invalid_config, message) from None
        if change.key == topic_configs.ARCHIVED:
            topic_configs.check_has_archive(value, broker)


def _check_range(number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise Refused(ErrorCode.invalid_request, f"{number} is out of range: send a number from {least} to {most}.")
