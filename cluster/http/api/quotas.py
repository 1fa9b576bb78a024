"""Client quotas over HTTP: DescribeClientQuotas and AlterClientQuotas."""

from typing import Annotated

import msgspec
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.static.primitive import f64

from cordwood.cluster.http.refusal import check
from cordwood.cluster.http.route import ApiRequest, DryRun, Nothing, Route
from cordwood.cluster.http.security.rights import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS

Entity = dict[str, str | None]
"""Names by entity type (user, client-id, ip); null stands for the default of the type."""


class Quota(msgspec.Struct, frozen=True):
    """The limits of one entity, such as a user or a client id of a user."""

    entity: Entity
    limits: dict[str, float]
    """By Kafka's key, such as producer_byte_rate."""


class Quotas(msgspec.Struct, frozen=True):
    """All client quotas."""

    quotas: list[Quota]


class QuotaChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits to set for an entity; null removes a limit."""

    entity: Annotated[Entity, msgspec.Meta(min_length=1, max_length=3)]
    limits: Annotated[dict[str, float | None], msgspec.Meta(min_length=1, max_length=100)]


class ChangedQuota(msgspec.Struct, frozen=True):
    """The limits that were changed, or would be."""

    entity: Entity
    changed: list[str]


async def list_quotas(asked: ApiRequest[Nothing, Nothing]) -> Quotas:
    """List the client quotas. Each broker counts for itself."""
    answer = await asked.context.cluster.ask(None, DescribeClientQuotasRequest(components=(), strict=False))
    check(answer.error_code, answer.error_message)
    return Quotas(
        [
            Quota(
                {part.entity_type: part.entity_name for part in row.entity},
                {limit.key: limit.value for limit in row.values},
            )
            async for row in asked.context.turns.each(answer.entries)
        ]
    )


async def alter_quota(asked: ApiRequest[DryRun, QuotaChange]) -> ChangedQuota:
    """Set or remove limits of a user, a client id or an address. They are in force at once."""
    change = asked.body
    entity = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in change.entity.items())
    ops = tuple(OpData(key=key, value=f64(value or 0.0), remove=value is None) for key, value in change.limits.items())
    request = AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=ops),), validate_only=asked.query.dry_run)
    (altered,) = (await asked.context.cluster.ask(None, request)).entries
    check(altered.error_code, altered.error_message)
    return ChangedQuota(change.entity, sorted(change.limits))


_PATH = "/v1/quotas"

ROUTES = (
    Route("GET", _PATH, list_quotas, Nothing, Nothing, Quotas, requires=(DESCRIBE_CLUSTER_CONFIGS,), refusals=(503,)),
    Route(
        "PATCH",
        _PATH,
        alter_quota,
        DryRun,
        QuotaChange,
        ChangedQuota,
        requires=(ALTER_CLUSTER_CONFIGS,),
        refusals=(503,),
    ),
)
