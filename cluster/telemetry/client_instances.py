"""Client instances and their pushes: what each one is to push, and whether a push is acceptable. Pure.

The decisions and error codes are those of Kafka's ClientMetricsManager (KIP-714).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import crc32c
from kio.schema.errors import ErrorCode

from cordwood.cluster.config.client_metrics import ALL_METRICS, INTERVAL_MS, Subscription, subscription
from cordwood.cluster.errors.refused import Refused
from cordwood.storage.batch import Compression

INSTANCES_MAX = 10_000
"""Beyond it, the instance with the oldest request is forgotten: its next push begins anew."""

ACCEPTED_COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)

NO_CLIENT = UUID(int=0)
_MAY_ASK_AGAIN = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
"""Errors after which a client asks for its subscription at once."""


@dataclass(frozen=True, slots=True)
class WantedMetrics:
    """What one client instance is to push: the id changes with the subscriptions."""

    subscription_id: int
    prefixes: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class ClientInstance:
    """A client instance. Times are the event loop's, in seconds; -inf for never."""

    wanted: WantedMetrics
    configs: object
    """The configs of all subscriptions from which `wanted` was made."""
    asked_at_s: float = float("-inf")
    pushed_at_s: float = float("-inf")
    last_error: ErrorCode = ErrorCode.none
    is_terminated: bool = False


@dataclass(slots=True)
class ClientInstances:
    """The client instances of one broker. `configs` returns those of all subscriptions, by name."""

    configs: Callable[[], Mapping[str, Mapping[str, str]]]
    bytes_max: int
    """The largest push (`telemetry.max.bytes`)."""
    instances: "OrderedDict[UUID, ClientInstance]" = field(default_factory=OrderedDict)
    _subscriptions: tuple[object, tuple[Subscription, ...]] = (None, ())

    def subscribed(self, instance_id: UUID, client: Mapping[str, str], now_s: float) -> WantedMetrics:
        """Return what an instance is to push. `client` has the values of the selectors.

        Raises Refused(THROTTLING_QUOTA_EXCEEDED) for an instance that asks again before its interval has passed.
        """
        instance = self._instance(instance_id, client)
        last_s = max(instance.asked_at_s, instance.pushed_at_s)
        is_due = (now_s - last_s) * 1000 >= instance.wanted.interval_ms
        if not is_due and instance.last_error not in _MAY_ASK_AGAIN:
            raise Refused(ErrorCode.throttling_quota_exceeded)
        instance.asked_at_s = now_s
        instance.last_error = ErrorCode.none
        return instance.wanted

    def check_push(
        self,
        instance_id: UUID,
        client: Mapping[str, str],
        subscription_id: int,
        compression: int,
        size: int,
        now_s: float,
        *,
        is_terminating: bool,
    ) -> None:
        """Check a push of `size` bytes. Raises Refused."""
        instance = self._instance(instance_id, client)
        code = self._refusal(instance, subscription_id, compression, size, now_s, is_terminating=is_terminating)
        instance.last_error = code
        if code is not ErrorCode.none:
            raise Refused(code)
        instance.is_terminated = is_terminating

    def _refusal(
        self,
        instance: ClientInstance,
        subscription_id: int,
        compression: int,
        size: int,
        now_s: float,
        *,
        is_terminating: bool,
    ) -> ErrorCode:
        if instance.is_terminated:
            return ErrorCode.invalid_request
        is_due = (now_s - instance.pushed_at_s) * 1000 >= instance.wanted.interval_ms
        if instance.asked_at_s > instance.pushed_at_s or is_due:
            instance.pushed_at_s = now_s
        elif not is_terminating:
            return ErrorCode.throttling_quota_exceeded
        if subscription_id != instance.wanted.subscription_id:
            return ErrorCode.unknown_subscription_id
        if compression not in (Compression.NONE, *ACCEPTED_COMPRESSIONS):
            return ErrorCode.unsupported_compression_type
        if size > self.bytes_max:
            return ErrorCode.telemetry_too_large
        return ErrorCode.none

    def _instance(self, instance_id: UUID, client: Mapping[str, str]) -> ClientInstance:
        """Return the instance with its current subscription. The least recently used one may be forgotten for it."""
        configs = self.configs()
        instance = self.instances.get(instance_id)
        if instance is None:
            instance = ClientInstance(self._wanted(instance_id, client, configs), configs)
            self.instances[instance_id] = instance
            if len(self.instances) > INSTANCES_MAX:
                self.instances.popitem(last=False)
        elif instance.configs is not configs:
            wanted = self._wanted(instance_id, client, configs)
            if wanted.subscription_id != instance.wanted.subscription_id:
                instance.last_error = ErrorCode.unknown_subscription_id
            instance.wanted, instance.configs = wanted, configs
        self.instances.move_to_end(instance_id)
        return instance

    def _wanted(
        self, instance_id: UUID, client: Mapping[str, str], configs: Mapping[str, Mapping[str, str]]
    ) -> WantedMetrics:
        if self._subscriptions[0] is not configs:
            self._subscriptions = configs, tuple(_valid(configs))
        matching = [found for found in self._subscriptions[1] if found.holds_for(client)]
        prefixes = tuple(sorted({prefix for found in matching for prefix in found.prefixes}))
        if ALL_METRICS in prefixes:
            prefixes = (ALL_METRICS,)
        interval_ms = min((found.interval_ms for found in matching), default=INTERVAL_MS)
        digest: int = crc32c.crc32c(repr((prefixes, interval_ms)).encode() + instance_id.bytes)
        return WantedMetrics(digest - (1 << 31), prefixes, interval_ms)


def _valid(configs: Mapping[str, Mapping[str, str]]) -> list[Subscription]:
    """Return the subscriptions; without invalid ones, which another version may have admitted."""
    found = []
    for own in configs.values():
        try:
            found.append(subscription(own))
        except ValueError:
            continue
    return found
