"""A scenario of one consumer group: members act by name, and the test advances the time."""

from dataclasses import dataclass, replace
from itertools import count

from kio.schema.errors import ErrorCode

from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.classic.rebalance import State
from cordwood.cluster.groups.exchange import (
    Join,
    JoinAnswer,
    JoinReply,
    Leaver,
    MemberProtocol,
    Rebalancing,
    RequestId,
    SavedGroup,
    Store,
    Sync,
    SyncAnswer,
    SyncReply,
)
from cordwood.cluster.groups.settings import GroupSettings
from cordwood.storage.steps import at_once

SESSION_MS = 10_000
REBALANCE_MS = 60_000


@dataclass(slots=True)
class Asked:
    """A request and its answer, once there is one."""

    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    answers: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.answers == 0

    @property
    def joined(self) -> JoinReply:
        assert self.join_reply is not None, "it still waits to join"
        return self.join_reply

    @property
    def synced(self) -> SyncReply:
        assert self.sync_reply is not None, "it still waits for its share"
        return self.sync_reply

    @property
    def code(self) -> ErrorCode:
        return self.synced.code if self.join_reply is None else self.join_reply.code


class GroupScenario:
    """A group and its named members. The group's writes complete immediately, unless `disk_waits`."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.group = ClassicGroup("group", self.settings)
        self.now_ms = 1_000
        self.ids: dict[str, str] = {}
        self.reasons: list[str] = []
        self.stored: list[Store] = []
        self.disk_waits = False
        self.disk_code = ErrorCode.none
        self._unwritten: list[Store] = []
        self._requests: dict[str, Join] = {}
        self._asked: dict[RequestId, Asked] = {}
        self._numbers = count(1)

    @property
    def state(self) -> State:
        return self.group.state

    @property
    def generation(self) -> int:
        return self.group.generation

    @property
    def leader(self) -> str:
        """The leader's name."""
        return next(name for name, member_id in self.ids.items() if member_id == self.group.members.leader)

    @property
    def members(self) -> set[str]:
        return {name for name, member_id in self.ids.items() if member_id in self.group.members.by_id}

    def ask_to_join(self, name: str, **changes: object) -> Asked:
        """Send one JoinGroup with the member's id, if it has one. `changes` are fields of Join."""
        base = self._requests.get(name, _first_request(name))
        if isinstance(names := changes.get("protocols"), str):
            changes["protocols"] = protocols(*names.split())
        request = replace(base, **{"member_id": self.ids.get(name, ""), **changes})  # type: ignore[arg-type]
        self._requests[name] = replace(request, member_id="")
        request_id, asked = self._request_id()
        self.group.join(request, request_id, f"{name}-{next(self._numbers)}", self.now_ms)
        self._perform()
        if asked.join_reply is not None and asked.join_reply.member_id:
            self.ids[name] = asked.join_reply.member_id
        return asked

    def join(self, name: str, **changes: object) -> Asked:
        """Join as a client does: send JoinGroup, and again with the member id if one is required."""
        asked = self.ask_to_join(name, **changes)
        if asked.join_reply is not None and asked.join_reply.code is ErrorCode.member_id_required:
            asked = self.ask_to_join(name)
        if asked.is_waiting and name not in self.ids:
            self.ids[name] = next(member.id for member in self.group.members if member.id.startswith(f"{name}-"))
        return asked

    def come_back(self, name: str, **changes: object) -> Asked:
        """Join as a restarted client that has lost its member id."""
        self.ids.pop(name, None)
        asked = self.ask_to_join(name, **changes)
        self.ids[name] = next(member.id for member in reversed(list(self.group.members)) if member.id.startswith(name))
        return asked

    def sync(self, name: str, shares: dict[str, bytes] | None = None, **changes: object) -> Asked:
        """Send one SyncGroup in the group's generation. `shares` are by member name."""
        assignments = {self.ids[other]: share for other, share in (shares or {}).items()}
        instance_id = self._requests[name].instance_id if name in self._requests else None
        request = Sync(self.ids.get(name, name), self.generation, instance_id, assignments=assignments)
        request_id, asked = self._request_id()
        self.group.sync(replace(request, **changes), request_id, self.now_ms)  # type: ignore[arg-type]
        self._perform()
        return asked

    def heartbeat(self, name: str, generation: int | None = None) -> ErrorCode:
        instance_id = self._requests[name].instance_id if name in self._requests else None
        in_generation = self.generation if generation is None else generation
        return self.group.heartbeat(self.ids.get(name, name), instance_id, in_generation, self.now_ms)

    def leave(self, *names: str, reason: str = "") -> list[ErrorCode]:
        return self.remove(*(Leaver(self.ids.get(name, name), None, reason) for name in names))

    def remove(self, *leavers: Leaver) -> list[ErrorCode]:
        codes = self.group.leave(leavers, self.now_ms)
        self._perform()
        return codes

    def may_commit(self, name: str, generation: int | None = None) -> ErrorCode:
        in_generation = self.generation if generation is None else generation
        return self.group.check_commit(self.ids.get(name, name), None, in_generation, self.now_ms, ())

    def pass_time(self, ms: int, *alive: str) -> None:
        """Advance the time over every deadline. The `alive` members send heartbeats each second."""
        until = self.now_ms + ms
        while self.now_ms < until:
            due = self.group.next_deadline()
            step = until if not alive else min(until, self.now_ms + 1000)
            self.now_ms = step if due is None else max(self.now_ms, min(step, due))
            for name in alive:
                self.heartbeat(name)
            self.group.tick(self.now_ms)
            self._perform()

    def stabilize(self, *names: str, **changes: object) -> "GroupScenario":
        """Make a stable group of these members and no others; the first leads."""
        for name in names:
            self.join(name, **changes)
        for name in names:
            if self.state is State.PREPARING_REBALANCE:
                self.join(name)
        self.share_out(*names)
        assert self.state is State.STABLE, f"the group is {self.state}"
        return self

    def share_out(self, *names: str) -> None:
        """Have all members sync; each assignment is the member's name."""
        for name in names:
            self.sync(name, {other: other.encode() for other in names} if name == self.leader else None)

    def disk_answers(self, code: ErrorCode = ErrorCode.none) -> None:
        """Complete the pending writes with this code."""
        waiting, self._unwritten = self._unwritten, []
        for store in waiting:
            self.group.stored(store, code, self.now_ms)
        self._perform()

    def restart_broker(self, saved: SavedGroup) -> None:
        """Restart the broker: the group is restored from what was written."""
        self.group = at_once(ClassicGroup.restore("group", saved, self.settings))
        self.group.begin_sessions(self.now_ms)
        self._perform()

    def refuse_waiting(self, code: ErrorCode) -> None:
        """Refuse all requests that wait, as before a conversion."""
        self.group.refuse_waiting(code)
        self._perform()

    def _request_id(self) -> tuple[RequestId, Asked]:
        request_id = RequestId(next(self._numbers))
        asked = self._asked[request_id] = Asked()
        return request_id, asked

    def _perform(self) -> None:
        for effect in at_once(self.group.take_effects()):
            match effect:
                case JoinAnswer(request_id, join_reply):
                    self._asked[request_id].join_reply = join_reply
                    self._asked[request_id].answers += 1
                case SyncAnswer(request_id, sync_reply):
                    self._asked[request_id].sync_reply = sync_reply
                    self._asked[request_id].answers += 1
                case Store() as store:
                    self.stored.append(store)
                    self._unwritten.append(store)
                case Rebalancing(reason):
                    self.reasons.append(reason)
        if self._unwritten and not self.disk_waits:
            self.disk_answers(self.disk_code)


def protocols(*names: str) -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, f"about {name}".encode()) for name in names)


def _first_request(name: str) -> Join:
    return Join(
        member_id="",
        protocol_type="consumer",
        protocols=protocols("range"),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        client_id=name,
        client_host="/127.0.0.1",
    )
