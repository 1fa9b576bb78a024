"""ExpireDelegationToken (40): an earlier or later expiry; at once for a negative period (KIP-48).

For the token's owner and its renewers. Version notes: 2 is flexible.
"""

from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.handlers.renew_delegation_token import expiring_at
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import Rights
from cordwood.cluster.kafka.token_requests import changed_expiry, milliseconds, own_token
from cordwood.cluster.metadata.commands import RemoveDelegationTokens

KEY = ApiKey.EXPIRE_DELEGATION_TOKEN
RIGHTS: Rights = ()


async def handle(request: ExpireDelegationTokenRequest, call: Call) -> ExpireDelegationTokenResponse:
    code, expiry = await changed_expiry(lambda: _expire(request, call), call)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp=expiry, throttle_time=NO_THROTTLE)


async def _expire(request: ExpireDelegationTokenRequest, call: Call) -> int | None:
    token, period_ms = own_token(request.hmac, call), milliseconds(request.expiry_time_period)
    now_ms = call.services.wall_clock()
    if period_ms < 0:
        image = await propose(RemoveDelegationTokens(((token.token_id, token.expiry_ms),)), call)
        # A renewal that came first has kept the token.
        return None if token.token_id in image.delegation_tokens else now_ms
    expiry_ms = min(token.max_ms, now_ms + period_ms)
    await propose(expiring_at(token, expiry_ms), call)
    return expiry_ms
