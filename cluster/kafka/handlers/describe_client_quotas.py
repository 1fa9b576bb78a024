"""DescribeClientQuotas (48): the client quotas of the entities that a filter matches (KIP-546)."""

from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE_CONFIGS, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.client_quotas import Entity
from cordwood.cluster.quotas.limits import CLIENT_ID, IP, USER

KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
RIGHTS: Rights = (Right(DESCRIBE_CONFIGS, CLUSTER),)

EXACT, DEFAULT, ANY = 0, 1, 2
"""The match types of a component: a name, the default, or every entity of the type."""


async def handle(request: DescribeClientQuotasRequest, call: Call) -> DescribeClientQuotasResponse:
    try:
        call.require(DESCRIBE_CONFIGS, CLUSTER)
        wanted = _Filter.of(request)
    except Refused as refusal:
        return DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=refusal.code, error_message=refusal.message, entries=None
        )
    quotas = call.services.quorum.image.client_quotas
    found = [(entity, limits) async for entity, limits in call.turns.each(quotas.items()) if wanted.matches(entity)]
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, entries=rows(_entry, found)
    )


@dataclass(frozen=True, slots=True)
class _Filter:
    names: Mapping[str, str | None]
    """By entity type: the name of the entity, None for the default."""
    types: frozenset[str]
    """The entity types of which every entity matches."""
    is_strict: bool
    """Whether an entity of further types does not match."""

    @classmethod
    def of(cls, request: DescribeClientQuotasRequest) -> "_Filter":
        """Check a filter. Raises Refused."""
        names: dict[str, str | None] = {}
        types: set[str] = set()
        for component in request.components:
            kind = component.entity_type
            if not kind:
                raise _invalid("Invalid empty entity type.")
            if kind in names or kind in types:
                raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in (USER, CLIENT_ID, IP):
                raise Refused(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
            _check_match(component)
            if component.match_type == ANY:
                types.add(kind)
            else:
                names[kind] = component.match
        asked = names.keys() | types
        if IP in asked and len(asked) > 1:
            message = (
                "Invalid entity filter component combination. IP filter component should not be used with user or"
                " clientId filter component."
            )
            raise _invalid(message)
        return cls(names, frozenset(types), request.strict)

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity)
        if self.is_strict and len(parts) != len(self.names) + len(self.types):
            return False
        has_names = all(kind in parts and parts[kind] == name for kind, name in self.names.items())
        return has_names and self.types <= parts.keys()


def _check_match(component: ComponentData) -> None:
    """Raise Refused if a component has a name where its match type has none, or the reverse."""
    if component.match_type == EXACT and component.match is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if component.match_type in (DEFAULT, ANY) and component.match is not None:
        kind = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")
    if component.match_type not in (EXACT, DEFAULT, ANY):
        raise _invalid(f"Unknown match type {component.match_type}")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.invalid_request, message)


def _entry(row: tuple[Entity, Mapping[str, float]]) -> EntryData:
    entity, limits = row
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(ValueData(key=key, value=value) for key, value in sorted(limits.items())),
    )
