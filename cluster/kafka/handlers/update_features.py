"""UpdateFeatures (57): finalizes the level of metadata.version, once every broker supports it (KIP-584, KIP-778).

Version notes: 1 replaces the flag for downgrades by their type, and adds validate only; 2 has no results for each
feature. A level is never lowered: a broker of an older release cannot read newer records.
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.update_features.v1.response import UpdatableFeatureResult, UpdateFeaturesResponse
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.features import Feature, features_in
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.features import METADATA_VERSION, Levels, UpdateFeatures

KEY = ApiKey.UPDATE_FEATURES
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
ITEMS_MAX = 1000
"""Maximum number of features in a request, which are looked at in one step. There are fewer than ten."""

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


async def handle(request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    code, message = ErrorCode.none, None
    try:
        call.require(ALTER, CLUSTER)
        await _update(request, call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message

    def result(update: FeatureUpdateKey) -> UpdatableFeatureResult:
        return UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=message)

    return UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=message,
        results=rows(result, request.feature_updates),
    )


async def _update(request: UpdateFeaturesRequest, call: Call) -> None:
    """Update all features or none. Raises Refused."""
    image = call.services.quorum.image
    known = {feature.name: feature for feature in features_in(image)}
    brokers = image.brokers.values()
    supported = await call.services.levels.ask([int(broker.id) for broker in brokers])
    async for update in call.turns.each(request.feature_updates):
        _check(update, known, supported)
    levels = {
        update.feature: int(update.max_version_level)
        async for update in call.turns.each(request.feature_updates)
        if update.max_version_level != known[update.feature].level
    }
    if levels and not request.validate_only:
        await propose(UpdateFeatures((*levels.items(),), tuple((broker.id, broker.epoch) for broker in brokers)), call)


def _check(update: FeatureUpdateKey, known: Mapping[str, Feature], supported: Mapping[int, Levels | None]) -> None:
    """Raise Refused, with Kafka's error and words where it has some."""
    name, level, kind = update.feature, update.max_version_level, update.upgrade_type
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    feature = known.get(name)
    if feature is None:
        raise _invalid(update, "The cluster does not support this feature.")
    if name == METADATA_VERSION:
        _check_brokers(update, supported)
    elif level > feature.supported.newest:
        raise _invalid(update, f"The cluster only supports versions {feature.supported}.")
    if level > feature.level and kind != _UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if level < feature.level and kind == _UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade.",
        )
    if level < feature.level:
        raise _invalid(update, "This feature cannot be downgraded: older brokers cannot read records written since.")


def _check_brokers(update: FeatureUpdateKey, supported: Mapping[int, Levels | None]) -> None:
    for broker_id, levels in sorted(supported.items()):
        if levels is None:
            raise Refused(
                ErrorCode.feature_update_failed,
                f"Broker {broker_id} does not answer, so it is unknown which versions of {update.feature} it supports:"
                " start it with the new release, or unregister it.",
            )
        if not levels.oldest <= update.max_version_level <= levels.newest:
            raise _invalid(update, f"Broker {broker_id} only supports versions {levels}.")


def _invalid(update: FeatureUpdateKey, reason: str) -> Refused:
    return Refused(
        ErrorCode.invalid_update_version,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
    )
