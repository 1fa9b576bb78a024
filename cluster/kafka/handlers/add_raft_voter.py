"""AddRaftVoter (80): adds a broker that keeps the metadata log as a voter of the metadata quorum (KIP-853).

Version notes: 1 adds `ack_when_committed`. The response is sent once the addition is committed in either version.
"""

import asyncio

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.raft_voters import check_cluster, directory_of, voter_address
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights
from cordwood.cluster.metadata.commands import AddVoter, BrokerId

KEY = ApiKey.ADD_RAFT_VOTER
RIGHTS: Rights = (Right(ALTER, CLUSTER),)
TIMEOUT_MAX_S = 60.0


async def handle(request: AddRaftVoterRequest, call: Call) -> AddRaftVoterResponse:
    code, message = ErrorCode.none, None
    try:
        call.require(ALTER, CLUSTER)
        check_cluster(request.cluster_id, call)
        host, port = voter_address(request.listeners)
        command = AddVoter(BrokerId(request.voter_id), directory_of(request.voter_directory_id), host, port)
        await _added(command, min(request.timeout.total_seconds(), TIMEOUT_MAX_S), call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return AddRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=code, error_message=message)


async def _added(command: AddVoter, timeout_s: float, call: Call) -> None:
    """Propose the addition until the broker has caught up, or the request has timed out. Raises Refused."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        try:
            await propose(command, call)
            return
        except Refused as refusal:
            voter = call.services.quorum.image.voters.get(command.broker_id)
            if refusal.code is not ErrorCode.request_timed_out:
                raise
            if voter is not None and voter.directory_id == command.directory_id:
                # The outcome of an earlier proposal of this request was unknown, and is known now.
                return
            if loop.time() > deadline_s:
                raise
