"""AlterClientQuotas (49): sets and removes client quotas (KIP-546), those of all valid entities in one command."""

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntityData as EntityPart
from kio.schema.alter_client_quotas.v1.request import EntryData as Wanted
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData, EntryData
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER_CONFIGS, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas, Entity, QuotaAlteration
from cordwood.cluster.quotas.validation import InvalidQuota, checked_entity, checked_value

KEY = ApiKey.ALTER_CLIENT_QUOTAS
RIGHTS: Rights = (Right(ALTER_CONFIGS, CLUSTER),)
ITEMS_MAX = 5000
"""Maximum number of changes in a request: all are one command, which every broker applies in one step."""

Outcome = tuple[QuotaAlteration, ...] | Refused


async def handle(request: AlterClientQuotasRequest, call: Call) -> AlterClientQuotasResponse:
    refusal = None if call.may(ALTER_CONFIGS, CLUSTER) else refusal_of(CLUSTER)
    seen: set[Entity] = set()
    outcomes = [(wanted, refusal or _checked(wanted, seen)) async for wanted in call.turns.each(request.entries)]
    try:
        changes = [change for _, outcome in outcomes if not isinstance(outcome, Refused) for change in outcome]
        if changes and not request.validate_only:
            await propose(AlterClientQuotas(tuple(changes)), call)
    except Refused as failure:
        outcomes = [(wanted, outcome if isinstance(outcome, Refused) else failure) for wanted, outcome in outcomes]
    return AlterClientQuotasResponse(throttle_time=NO_THROTTLE, entries=rows(_row, outcomes))


def _checked(wanted: Wanted, seen: set[Entity]) -> Outcome:
    try:
        entity = checked_entity((part.entity_type, part.entity_name) for part in wanted.entity)
        if entity in seen:
            raise InvalidQuota(f"Ignoring duplicate entity {dict(entity)}")
        seen.add(entity)
        changes: dict[str, QuotaAlteration] = {}
        for change in wanted.ops:
            key, value = change.key, None if change.remove else float(change.value)
            if key in changes:
                raise InvalidQuota(f"Duplicate quota key {key} not updating quota for this entity {dict(entity)}")
            changes[key] = QuotaAlteration(entity, key, checked_value(entity, key, value))
        return tuple(changes.values())
    except InvalidQuota as invalid:
        return Refused(ErrorCode.invalid_request, str(invalid))


def _row(row: tuple[Wanted, Outcome]) -> EntryData:
    wanted, outcome = row
    code, message = (outcome.code, outcome.message) if isinstance(outcome, Refused) else (ErrorCode.none, None)
    return EntryData(error_code=code, error_message=message, entity=rows(_part, wanted.entity))


def _part(part: EntityPart) -> EntityData:
    return EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
