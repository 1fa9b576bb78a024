"""UnregisterBroker (64): removes the registration of a fenced broker that holds no replica (KIP-631).

Kafka also unregisters a running broker or one that holds replicas, and leaves partitions with a replica that cannot be
reassigned.
"""

from kio.schema.errors import ErrorCode
from kio.schema.unregister_broker.v0 import UnregisterBrokerRequest, UnregisterBrokerResponse

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_THROTTLE, Call
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, CLUSTER, Right, Rights
from cordwood.cluster.metadata.commands import BrokerId, UnregisterBroker

KEY = ApiKey.UNREGISTER_BROKER
RIGHTS: Rights = (Right(ALTER, CLUSTER),)


async def handle(request: UnregisterBrokerRequest, call: Call) -> UnregisterBrokerResponse:
    code, message = ErrorCode.none, None
    try:
        call.require(ALTER, CLUSTER)
        await propose(UnregisterBroker(BrokerId(request.broker_id)), call)
    except Refused as refusal:
        code, message = refusal.code, refusal.message
    return UnregisterBrokerResponse(throttle_time=NO_THROTTLE, error_code=code, error_message=message)
