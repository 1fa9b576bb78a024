"""Metadata proposals of handlers, with the quorum's refusals as Kafka error codes."""

from kio.schema.errors import ErrorCode

from cordwood.cluster.errors.refused import Refused
from cordwood.cluster.kafka.call import Call
from cordwood.cluster.metadata.commands import Command
from cordwood.cluster.metadata.image import CommandRefused, Image
from cordwood.cluster.metadata.quorum import QuorumFailed, QuorumUnavailable


async def propose(command: Command, call: Call) -> Image:
    """Propose a command and wait until this broker has applied it. Return the new image. Raises Refused.

    REQUEST_TIMED_OUT: the outcome is not known yet. UNKNOWN_SERVER_ERROR: the outcome stays unknown.
    """
    try:
        return await call.services.quorum.propose(command)
    except CommandRefused as refusal:
        raise Refused(refusal.code, refusal.message) from refusal
    except QuorumUnavailable as unavailable:
        raise Refused(ErrorCode.request_timed_out, str(unavailable)) from unavailable
    except QuorumFailed as failure:
        raise Refused(ErrorCode.unknown_server_error, str(failure)) from failure
