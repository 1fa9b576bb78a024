"""The handlers of the served APIs.

They are imported after a broker's start (`imports.py`), or earlier by the first request of the API: with the classes of
their messages they would take as long as the rest of the start.
"""

import sys
from importlib import import_module
from types import ModuleType

from cordwood.cluster.kafka import handlers, wire
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import ServedApi

KAFKA_APIS = tuple(key for key in ApiKey if key < ApiKey.CREATE_CUT)
"""All but Cordwood's own APIs, which ApiVersions leaves out: Kafka's clients have no name for them."""

ADVERTISED_PRODUCE_FROM = 0
"""librdkafka sends uncompressed to brokers that do not advertise Produce from 0 (KAFKA-18659); 0 to 2 are refused."""


def load(key: ApiKey) -> ModuleType:
    """Return the handler's module. Import it if this is its first use, which takes tens of milliseconds."""
    module = import_module(_module_name(key))
    assert key == module.KEY, f"{module.__name__} is the handler of {module.KEY.name}"
    return module


def load_handlers() -> None:
    """Import all handlers now: for a simulation, whose second run must not differ from its first."""
    for key in ApiKey:
        load(key)


def is_loaded(key: ApiKey) -> bool:
    """Return whether the handler's module is imported."""
    return _module_name(key) in sys.modules


def _module_name(key: ApiKey) -> str:
    return f"{handlers.__name__}.{key.name.lower()}"


def served_apis() -> tuple[ServedApi, ...]:
    """Return the APIs and version ranges that ApiVersions reports, by API key."""
    return tuple(
        ServedApi(int(key), ADVERTISED_PRODUCE_FROM if key is ApiKey.PRODUCE else key.versions[0], key.versions[-1])
        for key in sorted(KAFKA_APIS)
    )


def items_max_of(module: ModuleType) -> int:
    """Return the maximum number of items in all arrays of one request to this API."""
    items_max: int = getattr(module, "ITEMS_MAX", wire.ITEMS_MAX)
    return items_max
