"""Changes of feature levels and client quotas by metadata commands. Pure."""

from dataclasses import replace
from typing import assert_never

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import client_quotas
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas
from cordwood.cluster.metadata.features import METADATA_VERSION, NEWEST_LEVEL, UpdateFeatures
from cordwood.cluster.metadata.image import CommandRefused, Image


def after(image: Image, command: UpdateFeatures | AlterClientQuotas) -> Image:
    """Return the image after the command. Raises CommandRefused."""
    match command:
        case UpdateFeatures():
            return _with_features(image, command)
        case AlterClientQuotas():
            return replace(image, client_quotas=client_quotas.after(image.client_quotas, command))
        case _:
            assert_never(command)


def _with_features(image: Image, command: UpdateFeatures) -> Image:
    features = dict(image.features)
    for name, level in command.updates:
        if name != METADATA_VERSION or not image.metadata_version <= level <= NEWEST_LEVEL:
            sentence = f"This cluster cannot run {name} at level {level}."
            raise CommandRefused(ErrorCode.feature_update_failed, sentence)
        features[name] = level
    return replace(image, features=features)
