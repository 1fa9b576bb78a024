"""DescribeCuts (513): the cuts, with their offsets, as far as the client may describe their topics."""

from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import DescribeCutsRequest, DescribeCutsResponse
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.cut_rows import row_of, topics_of
from cordwood.cluster.kafka.rights import DESCRIBE, TOPIC, Right, Rights

KEY = ApiKey.DESCRIBE_CUTS
RIGHTS: Rights = (Right(DESCRIBE, TOPIC, "a cut of which the client may not describe every topic is left out"),)


async def handle(request: DescribeCutsRequest, call: Call) -> DescribeCutsResponse:
    image = call.services.quorum.image
    names = sorted(image.cuts) if request.names is None else list(dict.fromkeys(request.names))
    known = [image.cuts[name] for name in names if name in image.cuts]
    rows = [
        row_of(cut, image)
        async for cut in call.turns.each(known)
        if all(call.may_see(DESCRIBE, TOPIC, topic) for topic in topics_of(cut, image))
    ]
    return DescribeCutsResponse(error_code=ErrorCode.none, cuts=tuple(rows))
