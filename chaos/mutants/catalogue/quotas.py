"""Mutants of client quotas: whose limit holds, what counts against it, and how clients beyond it are throttled."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

LIMITS, LIMITER, BUCKET = "cluster/quotas/limits.py", "cluster/quotas/limiter.py", "replication/token_bucket.py"
THROTTLE = "cluster/kafka/client_throttle.py"

WRONG_LIMIT = "A client has the limit of another entity."
TOO_MUCH = "A client uses more than its quota."
SUFFERS = "A client is throttled that should not be, or for too long."

MUTANTS = (
    Mutant(
        "default-users-come-before-users",
        LIMITS,
        "        (((USER, user),), of_user),\n        (((CLIENT_ID, client_id), (USER, None)), both),\n",
        "        (((CLIENT_ID, client_id), (USER, None)), both),\n        (((USER, user),), of_user),\n",
        "The quota of a user comes before those of the default user (KIP-55).",
        WRONG_LIMIT,
        Scenario.BROKERS,
    ),
    Mutant(
        "each-client-id-has-its-users-quota",
        LIMITS,
        "        (((USER, user),), of_user),\n",
        "        (((USER, user),), both),\n",
        "The quota of a user is shared by all its client ids.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "debts-are-forgiven",
        BUCKET,
        "            self.tokens -= amount\n",
        "            self.tokens = max(0.0, self.tokens - amount)\n",
        "What a request uses beyond the limit is a debt.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "idle-clients-save-up",
        BUCKET,
        "            self.tokens = min(self.tokens + (now - self.at) * self.rate, self._most)\n",
        "            self.tokens += (now - self.at) * self.rate\n",
        "An idle client may use the allowance of one second at once.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "changed-quotas-forgive-all-debts",
        LIMITER,
        "        self._found.clear()\n\n    def limit_of",
        "        self._found.clear()\n        self._buckets.clear()\n\n    def limit_of",
        "A change of one quota leaves what all groups have used.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "throttled-clients-are-read",
        THROTTLE,
        "        if connection.is_open and not connection.is_broker:\n",
        "        if False:\n",
        "The connection of a throttled client is muted (KIP-219).",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "consumers-in-debt-get-data",
        THROTTLE,
        "        if debt_s <= 0:\n            return False\n",
        "        if debt_s >= 0:\n            return False\n",
        "A fetch of a group in debt gets no data.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "heartbeats-are-throttled",
        THROTTLE,
        "        ApiKey.HEARTBEAT,\n",
        "",
        "No quota delays the heartbeats of a group.",
        "A member of a group that is throttled loses its partitions.",
        Scenario.BROKERS,
    ),
    Mutant(
        "request-percentages-throttle-for-any-time",
        THROTTLE,
        "        debt_s = min(REQUEST_THROTTLE_S_MAX, self._requests.debt_s(user, client_id, now))\n",
        "        debt_s = self._requests.debt_s(user, client_id, now)\n",
        "request_percentage throttles for one window at most.",
        SUFFERS,
        Scenario.BROKERS,
    ),
    Mutant(
        "former-quotas-mute-on",
        THROTTLE,
        "        for connection in list(self._muted):\n            connection.unmute()\n",
        "",
        "A changed quota is in force at once, for muted connections too.",
        SUFFERS,
        Scenario.BROKERS,
    ),
    Mutant(
        "mutations-are-not-refused",
        THROTTLE,
        "        if debt_s > 0 and is_strict:\n",
        "        if False:\n",
        "A client that knows THROTTLING_QUOTA_EXCEEDED gets it in place of the change (KIP-599).",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "new-connections-do-not-wait",
        THROTTLE,
        "        if left_s > 0 and (connection.is_authenticating or frame[0] < FIRST_KEY_BYTE):\n",
        "        if False:\n",
        "A connection beyond the rate of its address waits for its turn.",
        TOO_MUCH,
        Scenario.BROKERS,
    ),
    Mutant(
        "quotas-are-counted-after-their-removal",
        "cluster/kafka/client_throttle.py",
        "self.is_active = any(limits.keys() - {CONNECTION_CREATION_RATE} for limits in quotas.values())",
        "self.is_active = self.is_active or any(limits.keys() - {CONNECTION_CREATION_RATE} for "
        "limits in quotas.values())",
        "A broker without quotas counts nothing.",
        "Every request is slower than it need be.",
        Scenario.BROKERS,
    ),
    Mutant(
        "deleted-topics-count-as-one-partition",
        "cluster/kafka/handlers/delete_topics.py",
        "call.count_mutations(len(known.partitions), _FIRST_STRICT)",
        "call.count_mutations(1, _FIRST_STRICT)",
        "Each partition that is deleted counts.",
        "A client changes more than its quota.",
        Scenario.BROKERS,
    ),
    Mutant(
        "added-partitions-count-for-nothing",
        "cluster/kafka/handlers/create_partitions.py",
        "                call.count_mutations(len(command.assignments), _FIRST_STRICT)\n",
        "",
        "Each partition that is added counts.",
        "A client changes more than its quota.",
        Scenario.BROKERS,
    ),
)
