"""DescribeConfigs (32): configs of topics, brokers, groups and client metrics, with sources (KIP-226, KIP-569)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode

from cordwood.cluster.config import client_metrics, group_configs, topic_configs
from cordwood.cluster.config.listeners import advertised_text
from cordwood.cluster.config.rows import ConfigRow, Source, Synonym, broker_config
from cordwood.cluster.config.settings import SECRETS
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.config_resources import check_broker, require_on, topic_own, type_of
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE_CONFIGS, GROUP, TOPIC, Right, Rights
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.commands import BrokerId, ResourceType
from cordwood.cluster.metadata.image import ALL_BROKERS, EMPTY, BrokerImage
from cordwood.cluster.proposals.topics import check_name
from cordwood.storage.steps import distinct

KEY = ApiKey.DESCRIBE_CONFIGS
RIGHTS: Rights = (
    Right(DESCRIBE_CONFIGS, TOPIC),
    Right(DESCRIBE_CONFIGS, GROUP),
    Right(DESCRIBE_CONFIGS, CLUSTER, "for brokers and client metrics"),
)

_ADVERTISED = "advertised.listeners"


async def handle(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    # A repeated resource is described once: clients look it up by name.
    resources = await call.turns.run(distinct(request.resources))
    refused = {
        resource: refusal async for resource in call.turns.each(resources) if (refusal := _refusal(resource, call))
    }
    results = rows(partial(_result, request, call, refused), resources)
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=results)


def _refusal(resource: DescribeConfigsResource, call: Call) -> Refused | None:
    try:
        require_on(resource.resource_type, resource.resource_name, DESCRIBE_CONFIGS, call)
    except Refused as refusal:
        return refusal
    return None


def _result(
    request: DescribeConfigsRequest,
    call: Call,
    refused: Mapping[DescribeConfigsResource, Refused],
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    code, message = ErrorCode.none, None
    found: list[ConfigRow] = []
    try:
        if resource in refused:
            raise refused[resource]
        found = _rows(resource, call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    # An empty filter means all configs, like a missing one.
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=rows(partial(_config, request), [row for row in found if not wanted or row.key in wanted]),
    )


def _rows(resource: DescribeConfigsResource, call: Call) -> list[ConfigRow]:
    image = call.services.quorum.image
    broker = broker_config(call.services.settings, image)
    name = resource.resource_name
    if type_of(resource.resource_type) is ResourceType.TOPIC:
        check_name(name)
        return topic_configs.describe(topic_own(name, image), broker)
    if type_of(resource.resource_type) is ResourceType.CLIENT_METRICS:
        if not name:
            raise Refused(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
        return client_metrics.describe(image.client_metrics.get(name, EMPTY))
    if type_of(resource.resource_type) is ResourceType.GROUP:
        if not name:
            raise Refused(ErrorCode.invalid_request, "Group name must not be empty")
        return group_configs.describe(image.group_configs.get(name, EMPTY), broker)
    if name == ALL_BROKERS:
        return broker.rows_for_all_brokers()
    check_broker(name, image)
    if int(name) != call.services.settings.node_id:
        message = (
            f"Unexpected broker id, expected {call.services.settings.node_id}, but received {name}: send the"
            " request to that broker."
        )
        raise Refused(ErrorCode.invalid_request, message)
    registered = image.brokers[BrokerId(int(name))]
    return [_as_registered(row, registered) if row.key == _ADVERTISED else row for row in broker.rows()]


def _as_registered(row: ConfigRow, broker: BrokerImage) -> ConfigRow:
    """Replace the value by the registered endpoints: the broker completes `advertised.listeners` at startup."""
    value = advertised_text(broker.endpoints)
    advertised = Synonym(_ADVERTISED, value, Source.STATIC_BROKER)
    others = tuple(synonym for synonym in row.synonyms if synonym.source is Source.DEFAULT)
    return replace(row, value=value, source=advertised.source, synonyms=(advertised, *others))


def _config(request: DescribeConfigsRequest, row: ConfigRow) -> DescribeConfigsResourceResult:
    is_secret = row.key in SECRETS
    synonyms = row.synonyms if request.include_synonyms and not is_secret else ()
    return DescribeConfigsResourceResult(
        name=row.key,
        value=None if is_secret else row.value,
        read_only=row.is_read_only,
        config_source=int(row.source),
        is_sensitive=is_secret,
        synonyms=tuple(
            DescribeConfigsSynonym(name=synonym.key, value=synonym.value, source=int(synonym.source))
            for synonym in synonyms
        ),
        config_type=int(row.kind),
        documentation=row.documentation if request.include_documentation else None,
    )
