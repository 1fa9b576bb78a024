"""Metadata changes as handlers make them: proposed to the quorum, its refusals as error codes for the client."""

from kio.schema.errors import ErrorCode

from cordwood.cluster.kafka.call import Call, Refused
from cordwood.cluster.metadata.commands import Command
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumUnavailable


async def propose(command: Command, call: Call) -> Image:
    """Have a command applied. Raises Refused.

    REQUEST_TIMED_OUT means that it is not known yet whether it was applied, UNKNOWN_SERVER_ERROR that it never will be.
    """
    try:
        return await call.services.quorum.propose(command)
    except CommandRefused as refusal:
        raise Refused(refusal.code, refusal.message) from refusal
    except QuorumUnavailable as unavailable:
        raise Refused(ErrorCode.request_timed_out, str(unavailable)) from unavailable
    except QuorumFailed as failure:
        raise Refused(ErrorCode.unknown_server_error, str(failure)) from failure
