"""DropCut (514): drops a cut; retention and the log cleaner may remove what only it has kept."""

from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import DropCutRequest, DropCutResponse
from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.cut_rows import topics_of
from cordwood.cluster.kafka.proposals import propose
from cordwood.cluster.kafka.rights import ALTER, DESCRIBE, TOPIC, Right, Rights
from cordwood.cluster.metadata.cuts import DropCut

KEY = ApiKey.DROP_CUT
RIGHTS: Rights = (
    Right(ALTER, TOPIC, "on each topic of the cut"),
    Right(DESCRIBE, TOPIC, "without it on each topic, the cut does not exist for the client"),
)


async def handle(request: DropCutRequest, call: Call) -> DropCutResponse:
    try:
        image = call.services.quorum.image
        cut = image.cuts.get(request.name)
        topics = [] if cut is None else topics_of(cut, image)
        if cut is None or not all(call.may_see(DESCRIBE, TOPIC, topic) for topic in topics):
            raise Refused(ErrorCode.resource_not_found, f"There is no cut named {request.name}.")
        for topic in topics:
            call.require(ALTER, TOPIC, topic)
        await propose(DropCut(cut.name, cut.created_ms), call)
    except Refused as refusal:
        return DropCutResponse(error_code=refusal.code, error_message=refusal.message)
    return DropCutResponse(error_code=ErrorCode.none, error_message=None)
