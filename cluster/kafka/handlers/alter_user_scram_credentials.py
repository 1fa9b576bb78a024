"""AlterUserScramCredentials (51): sets and removes SCRAM credentials of users (KIP-554), all valid ones in one command.

A request has salted passwords; the metadata gets keys from which no client can authenticate.
"""

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.commands import AlterScramCredentials, ScramDeletion, ScramUpsertion
from cordwood.cluster.metadata.credentials import ScramMechanism
from cordwood.cluster.security.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, credential_of_salted

KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
ITEMS_MAX = 5000
"""Maximum number of changes in a request: all are one command, which every broker applies in one step."""
NAME_BYTES_MAX, SALT_BYTES_MAX = 1024, 1024

_Change = ScramDeletion | ScramUpsertion


async def handle(request: AlterUserScramCredentialsRequest, call: Call) -> AlterUserScramCredentialsResponse:
    refusal = None if call.may(ALTER, CLUSTER) else refusal_of(CLUSTER)
    outcomes: dict[str, _Change | Refused] = {}
    for change in (request.deletions, request.upsertions):
        async for one in call.turns.each(change):
            outcomes[one.name] = refusal or (_twice() if one.name in outcomes else _checked(one, call))
    try:
        await _alter([change for change in outcomes.values() if not isinstance(change, Refused)], call)
    except Refused as failure:
        outcomes = {name: failure if not isinstance(one, Refused) else one for name, one in outcomes.items()}

    def result(name: str) -> AlterUserScramCredentialsResult:
        outcome = outcomes[name]
        code, message = (outcome.code, outcome.message) if isinstance(outcome, Refused) else (ErrorCode.none, None)
        return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)

    return AlterUserScramCredentialsResponse(throttle_time=NO_THROTTLE, results=rows(result, outcomes))


async def _alter(changes: list[_Change], call: Call) -> None:
    if changes:
        upsertions = tuple(change for change in changes if isinstance(change, ScramUpsertion))
        deletions = tuple(change for change in changes if isinstance(change, ScramDeletion))
        await propose(AlterScramCredentials(upsertions, deletions), call)


def _twice() -> Refused:
    message = "A user credential cannot be altered twice in the same request"
    return Refused(ErrorCode.duplicate_resource, message)


def _checked(change: ScramCredentialDeletion | ScramCredentialUpsertion, call: Call) -> _Change | Refused:
    if not change.name:
        return _unacceptable("Username must not be empty")
    if len(change.name.encode()) > NAME_BYTES_MAX:
        return _unacceptable(f"Username must not be longer than {NAME_BYTES_MAX} bytes")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        return Refused(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialUpsertion):
        return _upsertion(change, mechanism)
    if (change.name, mechanism) not in call.services.quorum.image.scram_credentials:
        return Refused(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
    return ScramDeletion(change.name, mechanism)


def _upsertion(change: ScramCredentialUpsertion, mechanism: ScramMechanism) -> ScramUpsertion | Refused:
    if change.iterations < ITERATIONS_MIN:
        return _unacceptable("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        return _unacceptable("Too many iterations")
    if not 0 < len(change.salt) <= SALT_BYTES_MAX:
        return _unacceptable(f"A salt has 1 to {SALT_BYTES_MAX} bytes")
    if not change.salted_password:
        return _unacceptable("The salted password must not be empty")
    keys = credential_of_salted(bytes(change.salted_password), bytes(change.salt), change.iterations, mechanism)
    return ScramUpsertion(change.name, mechanism, keys.salt, keys.stored_key, keys.server_key, keys.iterations)


def _unacceptable(message: str) -> Refused:
    return Refused(ErrorCode.unacceptable_credential, message)
