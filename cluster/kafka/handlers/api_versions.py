"""ApiVersions (18): the served APIs with their version ranges. Every client sends it first.

Version notes: a newer version is answered with UNSUPPORTED_VERSION and the list, in the layout of 0 (KIP-511).
"""

import struct
from collections.abc import Sequence

from kio.schema.api_versions.v4 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.api_versions.v4.response import ApiVersion
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, ServedApi

KEY, VERSIONS = ApiKey.API_VERSIONS, range(5)


async def handle(_request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in call.services.served_apis
        ),
        throttle_time=NO_THROTTLE,
    )


def unsupported(correlation_id: int, served: Sequence[ServedApi]) -> bytes:
    """Encode the response to an unsupported version: error 35 and the list, in the layout of version 0 (KIP-511)."""
    rows = b"".join(struct.pack(">hhh", *row) for row in served)
    body = struct.pack(">ihi", correlation_id, ErrorCode.unsupported_version, len(served)) + rows
    return struct.pack(">i", len(body)) + body
