"""Changes of feature levels and client quotas by metadata commands. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import client_quotas
from cordwood.cluster.metadata.client_quotas import ENTITIES_MAX, AlterClientQuotas, Entity
from cordwood.cluster.metadata.features import LEVEL_MAX, METADATA_VERSION, UpdateFeatures
from cordwood.cluster.metadata.image import CommandRefused, Image


def after(image: Image, command: UpdateFeatures | AlterClientQuotas) -> Image:
    """Return the image after the command. Raises CommandRefused."""
    match command:
        case UpdateFeatures():
            return _with_features(image, command)
        case AlterClientQuotas():
            return replace(image, client_quotas=_with_quotas(image, command))
        case _:
            assert_never(command)


def _with_quotas(image: Image, command: AlterClientQuotas) -> Mapping[Entity, Mapping[str, float]]:
    quotas = client_quotas.after(image.client_quotas, command)
    if len(quotas) > max(ENTITIES_MAX, len(image.client_quotas)):
        sentence = f"A cluster has quotas of at most {ENTITIES_MAX} entities: set a default, or remove unused ones."
        raise CommandRefused(ErrorCode.policy_violation, sentence)
    return quotas


def _with_features(image: Image, command: UpdateFeatures) -> Image:
    """Return the image with the levels.

    A broker whose release has no such level applies the command in the same way.
    """
    if sorted(command.brokers) != sorted((broker.id, broker.epoch) for broker in image.brokers.values()):
        sentence = "A broker has started since the brokers were asked which levels they support: try again."
        raise CommandRefused(ErrorCode.feature_update_failed, sentence)
    features = dict(image.features)
    for name, level in command.updates:
        if name != METADATA_VERSION or not image.metadata_version <= level <= LEVEL_MAX:
            sentence = f"A cluster with metadata.version {image.metadata_version} cannot run {name} at level {level}."
            raise CommandRefused(ErrorCode.invalid_update_version, sentence)
        features[name] = level
    return replace(image, features=features)
