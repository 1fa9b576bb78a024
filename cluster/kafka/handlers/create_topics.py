"""CreateTopics (19): creates topics with their partitions, replica assignments and configs.

Internal topics are refused with INVALID_TOPIC_EXCEPTION: the broker creates them on first use, with their partition
count and cleanup policy.

Version notes: 5 returns the topic's configs (KIP-525); 6 adds THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.config import topic_configs
from cordwood.cluster.config.rows import BrokerConfig, ConfigRow, broker_config
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.config_resources import check_size
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import CLUSTER, CREATE, DESCRIBE_CONFIGS, TOPIC, Right, Rights
from cordwood.cluster.metadata.commands import Assignment, CreateTopic
from cordwood.cluster.proposals.topics import PARTITIONS_PER_REQUEST_MAX, check_not_internal, new_topic
from cordwood.storage.steps import Steps

KEY = ApiKey.CREATE_TOPICS
RIGHTS: Rights = (
    Right(CREATE, CLUSTER, "or CREATE on each topic"),
    Right(CREATE, TOPIC, "or CREATE on the cluster"),
    Right(DESCRIBE_CONFIGS, TOPIC, "without it, the response has no configs and counts"),
)

_FIRST_WITH_CONFIGS, _FIRST_STRICT = 5, 6


async def handle(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    broker = broker_config(call.services.settings, call.services.quorum.image)
    echoes = call.version >= _FIRST_WITH_CONFIGS
    defaults = _echo(topic_configs.describe({}, broker)) if echoes else {}
    times: Counter[str] = Counter()
    once: dict[str, CreatableTopic] = {}
    partitions = 0
    async for topic in call.turns.each(request.topics):
        times[topic.name] += 1
        once[topic.name] = topic
    permitted = once if call.may_see(CREATE, CLUSTER) else await call.permitted(CREATE, TOPIC, once)
    async for name in call.turns.each(permitted):
        partitions += _partitions_asked(once[name], broker)

    async def result(topic: CreatableTopic) -> CreatableTopicResult:
        try:
            if times[topic.name] > 1:
                raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name not in permitted:
                raise Refused(ErrorCode.topic_authorization_failed, "Authorization failed.")
            if partitions > PARTITIONS_PER_REQUEST_MAX:
                raise Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
            command = await call.turns.run(_command(topic, call, broker))
            if not request.validate_only:
                call.count_mutations(len(command.assignments), _FIRST_STRICT)
                await propose(command, call)
        except Refused as refusal:
            return _refused(topic.name, refusal)
        configs = None
        if call.may_see(DESCRIBE_CONFIGS, TOPIC, topic.name):
            own = dict(command.configs) if echoes else {}
            configs = {**defaults, **_echo(topic_configs.describe(own, broker, own))}
        return _created(command, configs, is_real=not request.validate_only)

    results = await call.turns.gather(result, once.values())
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=tuple(results))


def _partitions_asked(topic: CreatableTopic, broker: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else broker.settings.num_partitions


def _command(topic: CreatableTopic, call: Call, broker: BrokerConfig) -> Steps[CreateTopic]:
    check_not_internal(topic.name)
    check_size(topic.configs)
    assignments: dict[int, Assignment] = {}
    for row in topic.assignments:
        assignments[row.partition_index] = tuple(row.broker_ids)
        yield
    if len(assignments) < len(topic.assignments):
        message = "Found multiple manual partition assignments for one partition."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    new = new_topic(
        topic.name,
        call.services.quorum.image,
        broker,
        call.services.rng,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs={config.name: config.value for config in topic.configs},
    )
    return (yield from new)


def _created(
    command: CreateTopic, configs: Mapping[str, CreatableTopicConfigs] | None, *, is_real: bool
) -> CreatableTopicResult:
    """Return the result for a created topic, without configs and counts if `configs` is None."""
    topic_id = command.topic_id if is_real else None
    if configs is None:
        hidden = ErrorCode.topic_authorization_failed
        return CreatableTopicResult(
            name=command.name,
            topic_id=topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=hidden,
            configs=(),
        )
    return CreatableTopicResult(
        name=command.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=len(command.assignments),
        replication_factor=len(command.assignments[0]),
        configs=tuple(configs.values()),
    )


def _refused(name: str, refusal: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=refusal.code, error_message=refusal.message, configs=()
    )


def _echo(rows: Iterable[ConfigRow]) -> dict[str, CreatableTopicConfigs]:
    return {
        row.key: CreatableTopicConfigs(
            name=row.key,
            value=row.value,
            read_only=row.is_read_only,
            config_source=int(row.source),
            is_sensitive=False,
        )
        for row in rows
    }
