"""SaslHandshake (17): begins an authentication with a mechanism. The connection's authenticator handles it.

Version notes: after 0 the mechanism's messages follow without Kafka's headers, after 1 in SaslAuthenticate (KIP-152).
"""

from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import Rights

KEY = ApiKey.SASL_HANDSHAKE
RIGHTS: Rights = ()


async def handle(_request: SaslHandshakeRequest, _call: Call) -> SaslHandshakeResponse:
    """Refuse the request on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
