"""DescribeDelegationToken (41): tokens of some owners, or all, with their secrets (KIP-48).

A principal sees the tokens in which it has a part, and others with DESCRIBE on the token or DESCRIBE_TOKENS on its
owner. Version notes: 2 is flexible; 3 adds the requester.
"""

from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER, Right, Rights
from cordwood.cluster.kafka.token_requests import check_client, check_enabled
from cordwood.cluster.metadata.credentials import DelegationToken
from cordwood.cluster.security.delegation_tokens import has_part_in
from cordwood.cluster.security.principal import Principal

KEY = ApiKey.DESCRIBE_DELEGATION_TOKEN
RIGHTS: Rights = (
    Right(DESCRIBE, DELEGATION_TOKEN, "or DESCRIBE_TOKENS on the owner; other principals' tokens are left out"),
    Right(DESCRIBE_TOKENS, USER, "or DESCRIBE on the token"),
)
ITEMS_MAX = 1000
"""Maximum number of owners."""


async def handle(request: DescribeDelegationTokenRequest, call: Call) -> DescribeDelegationTokenResponse:
    code, tokens = ErrorCode.none, []
    try:
        check_client(call)
        check_enabled(call)
    except Refused as refusal:
        code = refusal.code
    else:
        owners = (
            None if request.owners is None else {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        )
        everyone = call.services.quorum.image.delegation_tokens.values()
        tokens = [_described(one, call) async for one in call.turns.each(everyone) if _is_shown(one, owners, call)]
    return DescribeDelegationTokenResponse(error_code=code, tokens=tuple(tokens), throttle_time=NO_THROTTLE)


def _is_shown(token: DelegationToken, owners: set[str] | None, call: Call) -> bool:
    if owners is not None and not any(has_part_in(token, owner) for owner in owners):
        return False
    return (
        has_part_in(token, str(call.identity.principal))
        or call.may_see(DESCRIBE, DELEGATION_TOKEN, token.token_id)
        or call.may_see(DESCRIBE_TOKENS, USER, token.owner)
    )


def _described(token: DelegationToken, call: Call) -> DescribedDelegationToken:
    owner, requester = Principal.of(token.owner), Principal.of(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=call.services.tokens.secret(token.token_id),
        renewers=tuple(map(_renewer, token.renewers)),
    )


def _renewer(text: str) -> DescribedDelegationTokenRenewer:
    renewer = Principal.of(text)
    return DescribedDelegationTokenRenewer(principal_type=renewer.kind, principal_name=renewer.name)
