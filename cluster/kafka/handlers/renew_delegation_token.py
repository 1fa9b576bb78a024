"""RenewDelegationToken (39): a later expiry, at most the token's maximum (KIP-48). For its owner and its renewers.

Version notes: 2 is flexible.
"""

from dataclasses import asdict, replace

from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import Rights
from cordwood.cluster.kafka.token_requests import changed_expiry, milliseconds, own_token
from cordwood.cluster.metadata.commands import PutDelegationToken
from cordwood.cluster.metadata.credentials import DelegationToken
from cordwood.cluster.security.delegation_tokens import end_of_period

KEY = ApiKey.RENEW_DELEGATION_TOKEN
RIGHTS: Rights = ()


async def handle(request: RenewDelegationTokenRequest, call: Call) -> RenewDelegationTokenResponse:
    code, expiry = await changed_expiry(lambda: _renew(request, call), call)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp=expiry, throttle_time=NO_THROTTLE)


async def _renew(request: RenewDelegationTokenRequest, call: Call) -> int:
    token = own_token(request.hmac, call)
    usual_ms, period_ms = call.services.settings.delegation_token_expiry_time_ms, milliseconds(request.renew_period)
    expiry_ms = min(token.max_ms, end_of_period(call.services.wall_clock(), period_ms, usual_ms))
    await propose(expiring_at(token, expiry_ms), call)
    return expiry_ms


def expiring_at(token: DelegationToken, expiry_ms: int) -> PutDelegationToken:
    """Return the command that gives a token another expiry, unless another request does so first."""
    return PutDelegationToken(**asdict(replace(token, expiry_ms=expiry_ms)), expected_expiry_ms=token.expiry_ms)
