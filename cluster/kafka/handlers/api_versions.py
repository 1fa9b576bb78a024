"""ApiVersions (18): the served APIs with their version ranges, and the features. Every client sends it first.

Version notes: 3 adds the features (KIP-584), and the name and version of the client's library, which are refused with
INVALID_REQUEST if they have other characters than Kafka permits (KIP-511); 4 adds features that begin at level 0; a
newer version is answered with UNSUPPORTED_VERSION and the list, in the layout of 0.
"""

import re
import struct
from collections.abc import Sequence

from kio.schema.api_versions.v4 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.api_versions.v4.response import ApiVersion, FinalizedFeatureKey, SupportedFeatureKey
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, ServedApi
from cordwood.cluster.kafka.features import features_in
from cordwood.cluster.kafka.rights import Rights

KEY = ApiKey.API_VERSIONS
RIGHTS: Rights = ()
_FIRST_WITH_SOFTWARE, _FIRST_WITH_LEVEL_0 = 3, 4
SOFTWARE_CHARS_KEPT = 100
"""A connection keeps the name and the version of its client's library as long as it is open."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def software_of(request: ApiVersionsRequest, version: int) -> tuple[str, str] | None:
    """Return the name and version of a client's library; None if the request has none, or none that are valid."""
    if version < _FIRST_WITH_SOFTWARE:
        return None
    named = request.client_software_name, request.client_software_version
    if not all(map(_SOFTWARE.fullmatch, named)):
        return None
    return named[0][:SOFTWARE_CHARS_KEPT], named[1][:SOFTWARE_CHARS_KEPT]


async def handle(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= _FIRST_WITH_SOFTWARE and software_of(request, call.version) is None:
        return ApiVersionsResponse(error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=NO_THROTTLE)
    image = call.services.quorum.image
    features = features_in(image)
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in call.services.served_apis
        ),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=supported.oldest, max_version=supported.newest)
            for name, supported, _ in features
            if supported.oldest > 0 or call.version >= _FIRST_WITH_LEVEL_0
        ),
        finalized_features_epoch=image.index,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, _, level in features
        ),
    )


def unsupported(correlation_id: int, served: Sequence[ServedApi]) -> bytes:
    """Encode the response to an unsupported version: error 35 and the list, in the layout of version 0 (KIP-511)."""
    rows = b"".join(struct.pack(">hhh", *row) for row in served)
    body = struct.pack(">ihi", correlation_id, ErrorCode.unsupported_version, len(served)) + rows
    return struct.pack(">i", len(body)) + body
