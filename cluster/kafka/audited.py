"""Audit events of administrative Kafka requests: an event for each resource in the response, with its outcome."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.metadata.acls import AclOperation, AclResource, Pattern, Permission
from cordwood.cluster.security.audit.event import SUCCEEDED, AuditEvent
from cordwood.cluster.security.principal import Identity

DENIED = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.delegation_token_authorization_failed,
    }
)
"""The codes of refusals by the authorizer, which it has noted itself."""


NAMED_MAX = 200
"""The most items of one resource that its event names. Requests with more for one resource are refused."""


class Act(NamedTuple):
    """An act on one resource, and its outcome. `detail` has no values: a config may be a secret."""

    resource: str
    code: int
    detail: str = ""


Acts = Callable[[Any, Any], Iterable[Act | None]]
"""Returns the acts in a request and its response, and None for a row without an act: a step of the loop is one item."""


def events_of(api: ApiKey, request: Any, response: Any, identity: Identity) -> Iterator[AuditEvent | None]:
    """Yield the events of an administrative request that has its response, and None for each row that has no event."""
    action = f"{api.name} (validate only)" if getattr(request, "validate_only", False) else api.name
    for act in ACTS[api](request, response):
        if act is None or act.code in DENIED:
            yield None
        else:
            outcome = SUCCEEDED if act.code == ErrorCode.none else ErrorCode(act.code).name.upper()
            yield AuditEvent(action, identity, act.resource, outcome, act.detail)


def _topics(field: str) -> Acts:
    def acts(_: Any, response: Any) -> Iterator[Act]:
        for row in getattr(response, field):
            yield Act(f"TOPIC:{row.name}", row.error_code)

    return acts


def _deleted_topics(_: Any, response: Any) -> Iterator[Act]:
    for row in response.responses:
        yield Act(f"TOPIC:{row.topic_id if row.name is None else row.name}", row.error_code)


def _configs(request: Any, response: Any) -> Iterator[Act]:
    for wanted, row in zip(request.resources, response.responses, strict=True):
        kind = _RESOURCES.get(row.resource_type, str(row.resource_type))
        detail = ", ".join(config.name for config in islice(wanted.configs, NAMED_MAX))
        yield Act(f"{kind}:{row.resource_name}", row.error_code, detail)


def _created_acls(request: Any, response: Any) -> Iterator[Act]:
    for row, result in zip(request.creations, response.results, strict=True):
        pattern = _name_of(Pattern, row.resource_pattern_type)
        yield Act(
            f"{_name_of(AclResource, row.resource_type)}:{row.resource_name}", result.error_code, _acl(row, pattern)
        )


def _deleted_acls(_: Any, response: Any) -> Iterator[Act | None]:
    for result in response.filter_results:
        yield Act("", result.error_code) if result.error_code != ErrorCode.none else None
        for row in result.matching_acls:
            pattern = _name_of(Pattern, row.pattern_type)
            yield Act(
                f"{_name_of(AclResource, row.resource_type)}:{row.resource_name}", row.error_code, _acl(row, pattern)
            )


def _acl(row: Any, pattern: str) -> str:
    permission, operation = _name_of(Permission, row.permission_type), _name_of(AclOperation, row.operation)
    return f"{permission} {row.principal} {operation} from {row.host}, {pattern}"


def _partitions(field: str, name: str, partitions: str, index: str) -> Acts:
    """Return the acts of a response with topics in `field`, each with its `name` and rows in `partitions`."""

    def acts(_: Any, response: Any) -> Iterator[Act | None]:
        if (code := getattr(response, "error_code", ErrorCode.none)) != ErrorCode.none:
            yield Act("", code)
        for topic in getattr(response, field):
            yield None
            for row in getattr(topic, partitions):
                yield Act(f"TOPIC:{getattr(topic, name)}", row.error_code, f"partition {getattr(row, index)}")

    return acts


def _groups(_: Any, response: Any) -> Iterator[Act]:
    for row in response.results:
        yield Act(f"GROUP:{row.group_id}", row.error_code)


def _deleted_offsets(request: Any, response: Any) -> Iterator[Act | None]:
    if response.error_code != ErrorCode.none:
        yield Act(f"GROUP:{request.group_id}", response.error_code)
    for topic in response.topics:
        yield None
        for row in topic.partitions:
            yield Act(f"GROUP:{request.group_id}", row.error_code, f"{topic.name}-{row.partition_index}")


def _deleted_share_offsets(request: Any, response: Any) -> Iterator[Act]:
    if response.error_code != ErrorCode.none:
        yield Act(f"GROUP:{request.group_id}", response.error_code)
    for row in response.responses:
        yield Act(f"GROUP:{request.group_id}", row.error_code, row.topic_name)


def _altered_share_offsets(request: Any, response: Any) -> Iterator[Act | None]:
    if response.error_code != ErrorCode.none:
        yield Act(f"GROUP:{request.group_id}", response.error_code)
    for topic in response.responses:
        yield None
        for row in topic.partitions:
            yield Act(f"GROUP:{request.group_id}", row.error_code, f"{topic.topic_name}-{row.partition_index}")


def _unregistered(request: Any, response: Any) -> Iterator[Act]:
    yield Act(f"BROKER:{request.broker_id}", response.error_code)


def _features(request: Any, response: Any) -> Iterator[Act]:
    for row in request.feature_updates:
        yield Act(f"FEATURE:{row.feature}", response.error_code, f"level {row.max_version_level}")


def _voter(request: Any, response: Any) -> Iterator[Act]:
    yield Act(f"VOTER:{request.voter_id}", response.error_code, f"directory {request.voter_directory_id}")


def _users(_: Any, response: Any) -> Iterator[Act]:
    for row in response.results:
        yield Act(f"USER:{row.user}", row.error_code)


def _quotas(request: Any, response: Any) -> Iterator[Act]:
    for wanted, row in zip(request.entries, response.entries, strict=True):
        entity = ", ".join(
            f"{part.entity_type}={part.entity_name or '(default)'}" for part in islice(row.entity, NAMED_MAX)
        )
        changes = (
            f"{change.key}={'removed' if change.remove else f'{change.value:g}'}"
            for change in islice(wanted.ops, NAMED_MAX)
        )
        yield Act(f"QUOTA:{entity}", row.error_code, ", ".join(changes))


def _created_token(_: Any, response: Any) -> Iterator[Act]:
    owner = f"owner {response.principal_type}:{response.principal_name}"
    yield Act(f"DELEGATION_TOKEN:{response.token_id}", response.error_code, owner)


def _changed_token(_: Any, response: Any) -> Iterator[Act]:
    # The request names the token by its secret, which is in no log.
    yield Act("DELEGATION_TOKEN:", response.error_code)


def _cut(request: Any, response: Any) -> Iterator[Act]:
    yield Act(f"CUT:{request.name}", response.error_code, ", ".join(getattr(request, "topics", ())))


def _name_of(kind: Any, number: int) -> str:
    try:
        name: str = kind(number).name
    except ValueError:
        return str(number)
    return name


_RESOURCES = {2: "TOPIC", 4: "BROKER", 32: "GROUP"}

ACTS: Mapping[int, Acts] = {
    ApiKey.CREATE_TOPICS: _topics("topics"),
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _topics("results"),
    ApiKey.DELETE_RECORDS: _partitions("topics", "name", "partitions", "partition_index"),
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _partitions("responses", "name", "partitions", "partition_index"),
    ApiKey.ELECT_LEADERS: _partitions("replica_election_results", "topic", "partition_result", "partition_id"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _partitions("results", "topic_name", "partitions", "partition_index"),
    ApiKey.DELETE_GROUPS: _groups,
    ApiKey.OFFSET_DELETE: _deleted_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _altered_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _deleted_share_offsets,
    ApiKey.UNREGISTER_BROKER: _unregistered,
    ApiKey.UPDATE_FEATURES: _features,
    ApiKey.ADD_RAFT_VOTER: _voter,
    ApiKey.REMOVE_RAFT_VOTER: _voter,
    ApiKey.UPDATE_RAFT_VOTER: _voter,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _users,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.CREATE_DELEGATION_TOKEN: _created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _changed_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _changed_token,
    ApiKey.CREATE_CUT: _cut,
    ApiKey.DROP_CUT: _cut,
}
"""The administrative APIs. A request of any other is no act."""
