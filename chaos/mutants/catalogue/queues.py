"""Mutants of queues over HTTP: what clients hold, and what a member owes the leaders."""

from cordwood.chaos.mutants.mutant import Mutant

DELIVERIES, MEMBER, MEMBERS, SESSION = (
    f"cluster/http/queues/{name}.py" for name in ("deliveries", "member", "members", "session")
)
STUCK = "A record that no client works on stays locked until its lock ends."
REFUSED = "A client whose acknowledgement is done, or would be, is refused."

MUTANTS = (
    Mutant(
        "ready-records-survive-their-session",
        MEMBER,
        "            self._ready = deque(one for one in self._ready if one.lock.session is not session)\n",
        "",
        "The records that no client has yet end with the session in which they were acquired.",
        "A client gets records that the leader has given to another member.",
    ),
    Mutant(
        "records-of-gone-clients-stay-locked",
        MEMBER,
        "                self.give_back(future.result().records)\n",
        "                pass\n",
        "The records of a client that is gone are released.",
        STUCK,
    ),
    Mutant(
        "stale-ready-records-are-kept",
        MEMBER,
        "            stale[lock.session].append(Ack(lock.place, record.offset, record.offset, RELEASE))\n",
        "",
        "Records that no client takes are released before their lock ends.",
        STUCK,
    ),
    Mutant(
        "closed-members-keep-their-sessions",
        MEMBER,
        "            await session.close()\n        self._sessions.clear()\n",
        "            pass\n        self._sessions.clear()\n",
        "A member that leaves its group releases its records at once.",
        STUCK,
    ),
    Mutant(
        "the-longest-lock-counts",
        MEMBER,
        "        until = min(ready.lock.acquired_at",
        "        until = max(ready.lock.acquired_at",
        "The lock of an answer is that of its record whose lock ends first.",
        "A client works on a record that has been delivered again.",
    ),
    Mutant(
        "acknowledgements-end-with-their-client",
        MEMBER,
        "                await asyncio.wait({settlement.task for settlement in settlements.values()})\n",
        "                await asyncio.gather(*{settlement.task for settlement in settlements.values()})\n",
        "An acknowledgement goes on if its client is gone, and a repeat gets its outcome.",
        REFUSED,
    ),
    Mutant(
        "acknowledgements-do-not-wait-for-renewals",
        MEMBER,
        "                    left.append(receipt)\n",
        "                    outcomes[receipt] = ErrorCode.invalid_record_state\n",
        "A request waits for those of other types that its receipts are in.",
        REFUSED,
    ),
    Mutant(
        "ended-sessions-keep-lock-timers",
        DELIVERIES,
        "                    self._locks.remove(QueueOffset(place, offset))\n",
        "                    continue\n",
        "The timers of locks end with their session.",
        "Timers of locks that have ended take memory until their time.",
    ),
    Mutant(
        "revoked-partitions-stay-in-the-session",
        SESSION,
        "self._known - places\n",
        "frozenset[QueuePartition]()\n",
        "Partitions that the group has taken away are forgotten in the session.",
        "A member acquires records of partitions that are assigned to others.",
    ),
    Mutant(
        "one-bad-receipt-fails-all",
        SESSION,
        "            if code is ErrorCode.invalid_record_state and len(of_place) > 1:\n",
        "            if False:\n",
        "A receipt whose lock has ended costs only itself.",
        REFUSED,
    ),
    Mutant(
        "members-have-other-ids-after-a-restart",
        MEMBERS,
        "for attempt in count())",
        "for attempt in count(id(self)))",
        "A broker that was killed joins as the member that the group still has.",
        "The records of some partitions wait until the session of the former member expires.",
    ),
    Mutant(
        "fetched-batches-are-decoded-ahead",
        MEMBER,
        "            while self._waiting and self._fetched:\n",
        "            while self._fetched:\n",
        "No more is decoded than clients take.",
        "A small compressed batch takes a thousand times its size of memory.",
    ),
    Mutant(
        "undecoded-batches-stay-locked",
        MEMBER,
        "            stale[lock.session] += _acks(lock.place, batches.take_rest(), RELEASE)\n",
        "",
        "Batches that no client takes are released undecoded before their lock ends.",
        STUCK,
    ),
    Mutant(
        "batches-are-served-after-their-session",
        MEMBER,
        "                if self._sessions.get(session.leader) is not session:\n",
        "                if False:\n",
        "Batches that are not decoded end with the session in which they were acquired.",
        "A client gets records that the leader has given to another member.",
    ),
    Mutant(
        "one-user-holds-all-records",
        "cluster/http/queues/members.py",
        "        if of_user >= most // USER_SHARE:\n",
        "        if of_user >= most:\n",
        "One user holds at most half of the records of queues.",
        "Other users of the broker get no records.",
    ),
    Mutant(
        "one-user-has-all-members",
        "cluster/http/queues/members.py",
        "        elif len(of_user) >= most // USER_SHARE:\n",
        "        elif len(of_user) >= most:\n",
        "One user has at most half of the members for HTTP clients.",
        "Other users of the broker get no queue.",
    ),
    Mutant(
        "answers-that-are-encoded-keep-their-records",
        "cluster/http/api/queues.py",
        ("        context.queues.give_back(taken)\n        raise\n"),
        "        raise\n",
        "A client that hangs up while its answer is encoded gives its records back.",
        "The records wait for the end of their lock.",
    ),
)
