"""DescribeUserScramCredentials (50): the mechanisms and iterations of users (KIP-554), never a key or a salt."""

from collections import Counter
from collections.abc import Sequence

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.storage.steps import distinct, in_order

KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
RIGHTS: Rights = (Right(DESCRIBE, CLUSTER),)


async def handle(request: DescribeUserScramCredentialsRequest, call: Call) -> DescribeUserScramCredentialsResponse:
    if not call.may(DESCRIBE, CLUSTER):
        refusal = refusal_of(CLUSTER)
        return DescribeUserScramCredentialsResponse(
            throttle_time=NO_THROTTLE, error_code=refusal.code, error_message=refusal.message, results=()
        )
    by_user: dict[str, list[CredentialInfo]] = {}
    async for (user, mechanism), credential in call.turns.each(call.services.quorum.image.scram_credentials.items()):
        info = CredentialInfo(mechanism=int(mechanism), iterations=credential.iterations)
        by_user.setdefault(user, []).append(info)
    asked: Counter[str] = Counter()
    async for one in call.turns.each(request.users or ()):
        asked[one.name] += 1
    names = await call.turns.run(distinct(asked) if asked else in_order(by_user, key=str))

    def result(user: str) -> DescribeUserScramCredentialsResult:
        if asked[user] > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            return _result(user, (), ErrorCode.duplicate_resource, message)
        if user not in by_user:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            return _result(user, (), ErrorCode.resource_not_found, message)
        return _result(user, by_user[user])

    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, results=rows(result, names)
    )


def _result(
    user: str, infos: Sequence[CredentialInfo], code: ErrorCode = ErrorCode.none, message: str | None = None
) -> DescribeUserScramCredentialsResult:
    ordered = tuple(sorted(infos, key=lambda info: info.mechanism))
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=ordered
    )
