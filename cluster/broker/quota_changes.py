"""Enforcement of the client quotas in the metadata by this broker."""

from cordwood.cluster.kafka.client_throttle import ClientThrottle
from cordwood.cluster.metadata.image import Image
from cordwood.cluster.metadata.quorum import Quorum


def enforce_quotas(quorum: Quorum, throttle: ClientThrottle) -> None:
    """Apply the quotas in the metadata, and every change of them."""

    def follow(old: Image, new: Image) -> None:
        if old.client_quotas is not new.client_quotas:
            throttle.follow(new.client_quotas)

    throttle.follow(quorum.image.client_quotas)
    quorum.subscribe(follow)
