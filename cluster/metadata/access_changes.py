"""Changes of ACLs, SCRAM credentials and delegation tokens by metadata commands. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata.acls import Acl
from cordwood.cluster.metadata.commands import (
    AlterScramCredentials,
    CreateAcls,
    DeleteAcls,
    PutDelegationToken,
    RemoveDelegationTokens,
)
from cordwood.cluster.metadata.credentials import DelegationToken, ScramCredential, ScramMechanism
from cordwood.cluster.metadata.image import CommandRefused, Image

AccessCommand = CreateAcls | DeleteAcls | AlterScramCredentials | PutDelegationToken | RemoveDelegationTokens


def after(image: Image, command: AccessCommand) -> Image:
    """Return the image after the command. Raises CommandRefused."""
    match command:
        case CreateAcls():
            return replace(image, acls=_with_acls(image.acls, command))
        case DeleteAcls():
            gone = set(command.ids)
            return replace(image, acls={acl_id: acl for acl_id, acl in image.acls.items() if acl_id not in gone})
        case AlterScramCredentials():
            return replace(image, scram_credentials=_with_scram(image.scram_credentials, command))
        case PutDelegationToken():
            return replace(image, delegation_tokens=_with_token(image.delegation_tokens, command))
        case RemoveDelegationTokens():
            return replace(image, delegation_tokens=_without_tokens(image.delegation_tokens, command))
        case _:
            assert_never(command)


def _with_acls(before: Mapping[UUID, Acl], command: CreateAcls) -> Mapping[UUID, Acl]:
    acls = dict(before)
    known = set(acls.values())
    for acl_id, acl in command.acls:
        if acl not in known:
            acls[acl_id] = acl
            known.add(acl)
    return acls


def _with_scram(
    before: Mapping[tuple[str, ScramMechanism], ScramCredential], command: AlterScramCredentials
) -> Mapping[tuple[str, ScramMechanism], ScramCredential]:
    credentials = dict(before)
    for gone in command.deletions:
        if credentials.pop((gone.user, gone.mechanism), None) is None:
            message = "Attempt to delete a user credential that does not exist."
            raise CommandRefused(ErrorCode.resource_not_found, message)
    for put in command.upsertions:
        credential = ScramCredential(put.salt, put.stored_key, put.server_key, put.iterations)
        credentials[put.user, put.mechanism] = credential
    return credentials


def _with_token(before: Mapping[str, DelegationToken], command: PutDelegationToken) -> Mapping[str, DelegationToken]:
    known = before.get(command.token_id)
    if (-1 if known is None else known.expiry_ms) != command.expected_expiry_ms:
        message = f"The delegation token {command.token_id} was changed by another request meanwhile: try again."
        raise CommandRefused(ErrorCode.invalid_update_version, message)
    token = DelegationToken(
        command.token_id,
        command.owner,
        command.requester,
        command.renewers,
        command.issued_ms,
        command.max_ms,
        command.expiry_ms,
    )
    return {**before, command.token_id: token}


def _without_tokens(
    before: Mapping[str, DelegationToken], command: RemoveDelegationTokens
) -> Mapping[str, DelegationToken]:
    gone = set(command.tokens)
    return {token_id: token for token_id, token in before.items() if (token_id, token.expiry_ms) not in gone}
