"""Cordoned brokers (KIP-1066): they get no new replicas, and those that they have stay. Pure."""

from collections.abc import Iterator

from cordwood.cluster.metadata.config_values import words
from cordwood.cluster.metadata.image import BrokerImage, Image

CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"

_LIST = words()


def cordoned_directories(image: Image, broker_id: int) -> frozenset[str]:
    """Return the paths of a broker's cordoned log directories; `*` stands for all."""
    own, of_all = image.configs_of_broker(broker_id).get(CORDONED), image.configs_of_all_brokers.get(CORDONED)
    return directories_of(of_all if own is None else own)


def directories_of(text: str | None) -> frozenset[str]:
    """Return the directories that a value of `cordoned.log.dirs` names."""
    found = None if text is None else _LIST.read(text)
    return frozenset(found) if isinstance(found, tuple) else frozenset()


def is_cordoned(image: Image, broker: BrokerImage) -> bool:
    """Return whether all log directories of a broker are cordoned.

    The metadata has no paths: a broker accepts only those of its `log.dirs`, and so their number decides.
    """
    cordoned = cordoned_directories(image, broker.id)
    return ALL_DIRECTORIES in cordoned or len(cordoned) >= max(len(broker.log_dirs), 1)


def open_brokers(image: Image) -> Iterator[BrokerImage]:
    """Yield the registered brokers that may get new replicas."""
    return (broker for broker in image.brokers.values() if not is_cordoned(image, broker))
