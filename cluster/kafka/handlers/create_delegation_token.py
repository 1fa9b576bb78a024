"""CreateDelegationToken (38): a token that lets its holder in as its owner (KIP-48), also for another owner (KIP-373).

Version notes: 2 is flexible; 3 adds the owner and the requester.
"""

from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import CREATE_TOKENS, USER, Right, Rights
from cordwood.cluster.kafka.token_requests import (
    NEVER_MS,
    check_client,
    check_enabled,
    milliseconds,
    timestamp,
    user,
)
from cordwood.cluster.metadata.commands import PutDelegationToken
from cordwood.cluster.security.delegation_tokens import end_of_period
from cordwood.cluster.security.principal import Principal

KEY = ApiKey.CREATE_DELEGATION_TOKEN
RIGHTS: Rights = (Right(CREATE_TOKENS, USER, "for a token of another owner"),)
ITEMS_MAX = 100
"""Maximum number of renewers."""
TOKENS_MAX = 10_000
"""Maximum number of tokens that one principal has requested: every token is in the metadata of all brokers."""


async def handle(request: CreateDelegationTokenRequest, call: Call) -> CreateDelegationTokenResponse:
    requester = owner = call.identity.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        token = await _create(request, owner, call)
    except Refused as refusal:
        return _response(refusal.code, owner, requester, None, b"")
    return _response(ErrorCode.none, owner, requester, token, call.services.tokens.secret(token.token_id))


async def _create(request: CreateDelegationTokenRequest, owner: Principal, call: Call) -> PutDelegationToken:
    check_client(call)
    requester = call.identity.principal
    if owner != requester:
        call.require(CREATE_TOKENS, USER, str(owner))
    check_enabled(call)
    user(*owner)
    renewers = [str(user(one.principal_type, one.principal_name)) for one in request.renewers]
    quorum, settings, now_ms = call.services.quorum, call.services.settings, call.services.wall_clock()
    if sum(one.requester == str(requester) for one in quorum.image.delegation_tokens.values()) >= TOKENS_MAX:
        raise Refused(ErrorCode.policy_violation, f"{requester} has requested {TOKENS_MAX} tokens: expire some.")
    lifetime_ms = milliseconds(request.max_lifetime)
    max_ms = end_of_period(now_ms, lifetime_ms, settings.delegation_token_max_lifetime_ms)
    token = PutDelegationToken(
        token_id=f"{call.services.rng.getrandbits(128):032x}",
        owner=str(owner),
        requester=str(requester),
        renewers=tuple(dict.fromkeys(renewers)),
        issued_ms=now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, now_ms + settings.delegation_token_expiry_time_ms),
    )
    await propose(token, call)
    return token


def _response(
    code: ErrorCode, owner: Principal, requester: Principal, token: PutDelegationToken | None, secret: bytes
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=timestamp(token.issued_ms if token else NEVER_MS),
        expiry_timestamp=timestamp(token.expiry_ms if token else NEVER_MS),
        max_timestamp=timestamp(token.max_ms if token else NEVER_MS),
        token_id=token.token_id if token else "",
        hmac=secret,
        throttle_time=NO_THROTTLE,
    )
