"""RemoveRaftVoter (81): removes a voter of the metadata quorum, which keeps the log as a learner (KIP-853).

A removal after which too few of the remaining voters have the metadata is refused: it could not be committed.
"""

from kio.schema.errors import ErrorCode
from kio.schema.remove_raft_voter.v0 import RemoveRaftVoterRequest, RemoveRaftVoterResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.raft_voters import check_cluster, directory_of
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights
from cordwood.cluster.metadata.commands import BrokerId, RemoveVoter

KEY = ApiKey.REMOVE_RAFT_VOTER
RIGHTS: Rights = (Right(ALTER, CLUSTER),)


async def handle(request: RemoveRaftVoterRequest, call: Call) -> RemoveRaftVoterResponse:
    code, message = ErrorCode.none, None
    try:
        call.require(ALTER, CLUSTER)
        check_cluster(request.cluster_id, call)
        await propose(RemoveVoter(BrokerId(request.voter_id), directory_of(request.voter_directory_id)), call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return RemoveRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=code, error_message=message)
