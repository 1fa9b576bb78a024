"""A member of a consumer group that heartbeats at a short interval and records each wait and each error code."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v1.request import FindCoordinatorRequest
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.sync_group.v3.request import SyncGroupRequest, SyncGroupRequestAssignment

from cordwood.chaos.live.flood.raw_connection import ANSWER_S, CLIENT_ID
from cordwood.chaos.live.security import security
from cordwood.client.blocking import BlockingConnection, connect

HEARTBEAT_S = 0.1
SESSION_S = 3.0
"""Longer than any allowed wait, shorter than any consumer's default: a session that expires early shows."""
RETRY_S = 0.2
FIRST_JOIN_S = 30.0
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"


class NotAMember(Exception):
    """The coordinator refused a request; the message has the API and the error code."""


class SteadyMember:
    """One member in its own thread. `waited` gets each answered heartbeat, `failed` each failure after the first join.

    Once the member is in the group, no other client may put it out.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        waited: Callable[[float, float], None],
        failed: Callable[[str], None],
        session_s: float = SESSION_S,
    ) -> None:
        """`waited` gets the start and end of each heartbeat, in seconds of the monotonic clock."""
        self._bootstrap, self._group, self._session_s = bootstrap.partition(",")[0], group, session_s
        self._waited, self._failed = waited, failed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the heartbeat in flight, and join the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        first_failure_counts_at = time.monotonic() + FIRST_JOIN_S
        has_joined = False
        while not self._stopping.is_set():
            try:
                with _connected(self._coordinator()) as connection:
                    member_id, generation = self._join(connection)
                    has_joined = True
                    self._heartbeat(connection, member_id, generation)
            except (OSError, NotAMember) as error:
                # A coordinator that is being created refuses for a moment.
                if has_joined or time.monotonic() > first_failure_counts_at:
                    self._failed(f"the group's member: {error}")
                self._stopping.wait(RETRY_S)

    def _coordinator(self) -> str:
        with _connected(self._bootstrap) as connection:
            answer = connection.ask(FindCoordinatorRequest(key=self._group, key_type=0))
        _check("FindCoordinator", answer.error_code)
        return f"{answer.host}:{answer.port}"

    def _join(self, connection: BlockingConnection) -> tuple[str, int]:
        """Join the group and wait until it is stable. Return the member's id and generation. Raises NotAMember."""
        answer = connection.ask(self._join_request(""))
        if answer.error_code is ErrorCode.member_id_required:
            answer = connection.ask(self._join_request(answer.member_id))
        _check("JoinGroup", answer.error_code)
        assignment = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")
        synced = connection.ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                group_instance_id=None,
                assignments=(assignment,),
            )
        )
        _check("SyncGroup", synced.error_code)
        return answer.member_id, answer.generation_id

    def _join_request(self, member_id: str) -> JoinGroupRequest:
        session = timedelta(seconds=self._session_s)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout=session,
            rebalance_timeout=session,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=b""),),
        )

    def _heartbeat(self, connection: BlockingConnection, member_id: str, generation: int) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=generation, member_id=member_id, group_instance_id=None
        )
        while not self._stopping.wait(HEARTBEAT_S):
            began_s = time.monotonic()
            answer = connection.ask(request)
            self._waited(began_s, time.monotonic())
            _check("Heartbeat", answer.error_code)


def _connected(address: str) -> BlockingConnection:
    return connect(address, ANSWER_S, CLIENT_ID, security())


def _check(api: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise NotAMember(f"{api} was refused with {code.name.upper()}")
