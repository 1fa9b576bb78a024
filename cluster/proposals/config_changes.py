"""Checks of config changes of topics and brokers."""

from collections.abc import Mapping, Sequence

from kio.schema.errors import ErrorCode

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig
from cordwood.cluster.config.settings import SETTINGS
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.metadata.commands import ConfigChange, ResourceType


def check_changes(
    resource: ResourceType, own: Mapping[str, str], changes: Sequence[ConfigChange], broker: BrokerConfig
) -> None:
    """Validate config changes of a resource. Raises Refused.

    Unchanged configs are not validated: a newer version may have set them.
    """
    if resource is ResourceType.TOPIC:
        topic_configs.validate_changes(own, {change.key: change.value for change in changes}, broker)
        return
    for change in changes:
        setting = SETTINGS.get(change.key)
        if setting is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown broker config name: {change.key}")
        if not setting.is_dynamic:
            raise Refused(ErrorCode.invalid_request, f"Cannot update these configs dynamically: [{change.key}]")
        try:
            if change.value is not None:
                setting.type.parse(change.value)
        except ValueError as error:
            message = f"Invalid value {change.value} for configuration {change.key}: it must be {error}."
            raise Refused(ErrorCode.invalid_config, message) from None
