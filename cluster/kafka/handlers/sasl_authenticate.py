"""SaslAuthenticate (36): a message of the mechanism of a SaslHandshake. The connection's authenticator handles it.

Version notes: 1 adds the session's lifetime (KIP-368).
"""

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import Rights

KEY = ApiKey.SASL_AUTHENTICATE
RIGHTS: Rights = ()


async def handle(_request: SaslAuthenticateRequest, _call: Call) -> SaslAuthenticateResponse:
    """Refuse the request on a listener without SASL."""
    return refusal(ErrorCode.illegal_sasl_state, "SaslAuthenticate request received after successful authentication")


def refusal(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    """Return the response to a failed authentication."""
    return SaslAuthenticateResponse(
        error_code=code, error_message=message, auth_bytes=b"", session_lifetime=timedelta(0)
    )
