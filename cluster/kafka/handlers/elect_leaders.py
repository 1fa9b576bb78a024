"""ElectLeaders: have a partition led by its preferred replica, or by any where none is in sync (KIP-183, KIP-460).

Partitions are led by their preferred replica from their creation on, so that none needs an election yet.
"""

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call, Refused
from cordwood.cluster.metadata.image import Image

KEY, VERSIONS = ApiKey.ELECT_LEADERS, range(3)

_PREFERRED, _UNCLEAN = 0, 1
"""Types of election. Version 0 knows only the first."""


async def handle(request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    image, election = call.services.quorum.image, request.election_type
    if request.topic_partitions is None:
        wanted = [(topic.name, tuple(range(len(topic.partitions)))) for topic in image.topics_by_name.values()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    results = []
    for topic, indexes in wanted:
        outcomes = {index: _outcome(topic, index, election, image) for index in indexes}
        if request.topic_partitions is None:
            # Who asks for all is told of those alone that are not as they should be.
            outcomes = {index: at for index, at in outcomes.items() if at.code is not ErrorCode.election_not_needed}
        if outcomes or request.topic_partitions is not None:
            results.append(_result(topic, outcomes))
    is_known = election in (_PREFERRED, _UNCLEAN)
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if is_known else ErrorCode.invalid_request,
        replica_election_results=tuple(results),
    )


def _outcome(topic: str, index: int, election: int, image: Image) -> Refused:
    known = image.topics_by_name.get(topic)
    if election not in (_PREFERRED, _UNCLEAN):
        return Refused(ErrorCode.invalid_request, f"Unknown election type {election}")
    if known is None:
        return Refused(ErrorCode.unknown_topic_or_partition, f"No such topic as {topic}")
    if index not in range(len(known.partitions)):
        return Refused(ErrorCode.unknown_topic_or_partition, f"No such partition as {topic}-{index}")
    partition = known.partitions[index]
    if election == _UNCLEAN or partition.leader == partition.replicas[0]:
        return Refused(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
    return Refused(ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")


def _result(topic: str, outcomes: dict[int, Refused]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic,
        partition_result=tuple(
            PartitionResult(partition_id=index, error_code=outcome.code, error_message=outcome.message)
            for index, outcome in outcomes.items()
        ),
    )
