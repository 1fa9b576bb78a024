"""ElectLeaders (43): preferred leader election, or unclean election of an out-of-sync replica (KIP-183, KIP-460).

Version notes: 0 has no election type, and means the preferred leader.
"""

from typing import NamedTuple

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.named_partitions import by_topic
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights, refusal_of
from cordwood.cluster.kafka.rows import rows
from cordwood.cluster.metadata.commands import Election, ElectLeaders
from cordwood.cluster.metadata.image import NO_LEADER, Image, PartitionImage

KEY = ApiKey.ELECT_LEADERS
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
AT_ONCE_MAX = 500
"""Maximum number of partitions in one command."""


class _Place(NamedTuple):
    topic: str
    partition: int


async def handle(request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    refusal = None if call.may(ALTER, CLUSTER) else refusal_of(CLUSTER)
    image, asks_for_all = call.services.quorum.image, request.topic_partitions is None
    places: list[_Place] = []
    if request.topic_partitions is None and refusal is None:
        known = ((name, range(len(topic.partitions))) for name, topic in image.topics_by_name.items())
        places = [_Place(*place) async for place in call.turns.within(known)]
    elif request.topic_partitions is not None:
        asked = await call.turns.run(by_topic((topic.topic, topic.partitions) for topic in request.topic_partitions))
        places = [_Place(*place) async for place in call.turns.within(asked.items())]
    try:
        if refusal is not None:
            raise refusal
        outcomes = await _elect(_election(request.election_type), places, call)
        code = ErrorCode.none
    except Refused as whole:
        outcomes = dict.fromkeys(places, whole)
        code = whole.code
    results: dict[str, list[tuple[int, Refused]]] = {}
    async for place in call.turns.each(places):
        # A request for all partitions gets only those that needed an election.
        if not asks_for_all or outcomes[place].code is not ErrorCode.election_not_needed:
            results.setdefault(place.topic, []).append((place.partition, outcomes[place]))
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=code, replica_election_results=rows(_topic_row, results.items())
    )


def _election(number: int) -> Election:
    """Decode the election type. Raises Refused."""
    try:
        return Election(number)
    except ValueError:
        raise Refused(ErrorCode.invalid_request, f"Unknown election type {number}") from None


async def _elect(election: Election, places: list[_Place], call: Call) -> dict[_Place, Refused]:
    """Elect leaders. Return the outcome by partition, with code NONE after an election.

    Raises Refused if a command was refused as a whole.
    """
    image = call.services.quorum.image
    outcomes: dict[_Place, Refused] = {}
    needed = []
    async for place in call.turns.each(places):
        try:
            partition = _find(place, image)
        except Refused as refusal:
            outcomes[place] = refusal
            continue
        if _is_led_as_wanted(partition, election):
            outcomes[place] = Refused(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
        else:
            needed.append(place)
    for start in range(0, len(needed), AT_ONCE_MAX):
        some = needed[start : start + AT_ONCE_MAX]
        wanted = tuple((image.topics_by_name[place.topic].id, place.partition) for place in some)
        now = await propose(ElectLeaders(election, wanted), call)
        outcomes |= {place: _outcome(place, election, now) for place in some}
    return outcomes


def _find(place: _Place, image: Image) -> PartitionImage:
    """Return a partition of the image. Raises Refused."""
    known = image.topics_by_name.get(place.topic)
    if known is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Topic {place.topic} does not exist")
    if place.partition not in range(len(known.partitions)):
        raise Refused(ErrorCode.unknown_topic_or_partition, f"Partition {place.topic}-{place.partition} does not exist")
    return known.partitions[place.partition]


def _is_led_as_wanted(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader != NO_LEADER


def _outcome(place: _Place, election: Election, image: Image) -> Refused:
    """Return the outcome for a partition that needed an election."""
    try:
        partition = _find(place, image)
    except Refused as refusal:
        return refusal
    if _is_led_as_wanted(partition, election):
        return Refused(ErrorCode.none)
    if election is Election.PREFERRED:
        return Refused(ErrorCode.preferred_leader_not_available, "The preferred leader was not available.")
    return Refused(ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available.")


def _topic_row(found: tuple[str, list[tuple[int, Refused]]]) -> ReplicaElectionResult:
    topic, outcomes = found
    return ReplicaElectionResult(topic=topic, partition_result=rows(_partition_row, outcomes))


def _partition_row(found: tuple[int, Refused]) -> PartitionResult:
    index, outcome = found
    return PartitionResult(partition_id=index, error_code=outcome.code, error_message=outcome.message)
