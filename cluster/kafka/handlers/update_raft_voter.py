"""UpdateRaftVoter (82): changes the address of a voter of the metadata quorum (KIP-853).

Kafka's voters send this request themselves. A voter of Cordwood keeps its address until an administrator changes it.
"""

from kio.schema.errors import ErrorCode
from kio.schema.update_raft_voter.v0.request import UpdateRaftVoterRequest
from kio.schema.update_raft_voter.v0.response import CurrentLeader, UpdateRaftVoterResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.raft_voters import check_cluster, directory_of, voter_address
from cordwood.cluster.kafka.rights import CLUSTER, CLUSTER_ACTION, Right, Rights
from cordwood.cluster.metadata.commands import BrokerId, UpdateVoter

KEY = ApiKey.UPDATE_RAFT_VOTER
RIGHTS: Rights = (Right(CLUSTER_ACTION, CLUSTER),)

_UNKNOWN = -1


async def handle(request: UpdateRaftVoterRequest, call: Call) -> UpdateRaftVoterResponse:
    code = ErrorCode.none
    try:
        call.require(CLUSTER_ACTION, CLUSTER)
        check_cluster(request.cluster_id, call)
        host, port = voter_address(request.listeners)
        command = UpdateVoter(BrokerId(request.voter_id), directory_of(request.voter_directory_id), host, port)
        await propose(command, call)
    except Refused as refusal:
        code = refusal.code
    return UpdateRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=code, current_leader=_leader(call))


def _leader(call: Call) -> CurrentLeader:
    status, image = call.services.quorum.status(), call.services.quorum.image
    voter = None if status.leader_id is None else image.voters.get(status.leader_id)
    return CurrentLeader(
        leader_id=BrokerId(_UNKNOWN) if status.leader_id is None else status.leader_id,
        leader_epoch=status.term,
        host="" if voter is None else voter.host,
        port=0 if voter is None else voter.port,
    )
