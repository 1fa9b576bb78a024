"""GetTelemetrySubscriptions (71): which metrics a client instance is to push, and how often (KIP-714)."""

from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse

from cordwood.cluster.config.client_metrics import INTERVAL_MS
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import Rights
from cordwood.cluster.kafka.telemetry_client import selectors_of
from cordwood.cluster.telemetry.client_instances import ACCEPTED_COMPRESSIONS, NO_CLIENT, WantedMetrics

KEY = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
RIGHTS: Rights = ()


async def handle(request: GetTelemetrySubscriptionsRequest, call: Call) -> GetTelemetrySubscriptionsResponse:
    telemetry = call.services.telemetry
    instance_id = request.client_instance_id or NO_CLIENT
    if instance_id == NO_CLIENT:
        instance_id = UUID(int=call.services.rng.getrandbits(128), version=4)
    code, wanted = ErrorCode.none, WantedMetrics(0, (), INTERVAL_MS)
    try:
        wanted = telemetry.instances.subscribed(instance_id, selectors_of(instance_id, call), telemetry.now_s())
    except Refused as refusal:
        code = refusal.code
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=tuple(map(int, ACCEPTED_COMPRESSIONS)),
        push_interval=timedelta(milliseconds=wanted.interval_ms),
        telemetry_max_bytes=telemetry.instances.bytes_max,
        delta_temporality=True,
        requested_metrics=wanted.prefixes,
    )
