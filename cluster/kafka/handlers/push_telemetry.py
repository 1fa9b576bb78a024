"""PushTelemetry (72): the metrics of a client instance, as OpenTelemetry MetricsData (KIP-714).

They are decompressed within `telemetry.max.bytes`, read in a thread, and shown at /metrics.
"""

from kio.schema.errors import ErrorCode
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import Rights
from cordwood.cluster.kafka.telemetry_client import selectors_of
from cordwood.cluster.telemetry import otlp
from cordwood.cluster.telemetry.client_instances import NO_CLIENT
from cordwood.cluster.telemetry.otlp import Sample
from cordwood.storage.decompression import unpacked
from cordwood.storage.errors import CorruptBatch, OutOfResources

KEY = ApiKey.PUSH_TELEMETRY
RIGHTS: Rights = ()


async def handle(request: PushTelemetryRequest, call: Call) -> PushTelemetryResponse:
    code = ErrorCode.none
    try:
        await _push(request, call)
    except Refused as refusal:
        code = refusal.code
    except OutOfResources:
        code = ErrorCode.throttling_quota_exceeded
    return PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=code)


async def _push(request: PushTelemetryRequest, call: Call) -> None:
    telemetry, instance_id = call.services.telemetry, request.client_instance_id or NO_CLIENT
    if instance_id == NO_CLIENT:
        raise Refused(ErrorCode.invalid_request)
    client = selectors_of(instance_id, call)
    telemetry.instances.check_push(
        instance_id,
        client,
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        telemetry.now_s(),
        is_terminating=request.terminating,
    )
    if request.metrics:
        bytes_max = telemetry.instances.bytes_max
        arguments = bytes(request.metrics), request.compression_type, bytes_max
        samples: list[Sample] = await call.services.decoding.run(_samples, *arguments, size=bytes_max)
        telemetry.take(instance_id, client, samples)


def _samples(metrics: bytes, compression: int, bytes_max: int) -> list[Sample]:
    """Decompress and read a push, in a thread. Raises Refused."""
    try:
        return otlp.read(unpacked(metrics, compression, bytes_max))
    except CorruptBatch:
        raise Refused(ErrorCode.invalid_record) from None
    except OverflowError:
        raise Refused(ErrorCode.telemetry_too_large) from None
