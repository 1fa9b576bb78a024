"""Mutants of reassignments: when they end, who must have a record meanwhile, and what is throttled."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

LOST = "A replica without committed records is elected leader."

MUTANTS = (
    Mutant(
        "moves-end-with-none-that-stays-in-sync",
        "cluster/metadata/elections.py",
        "    if not set(target) & set(partition.isr):\n        return partition\n",
        "",
        "A reassignment completes only with a member of the ISR that stays (KIP-455).",
        "A partition has no replica in sync.",
        Scenario.QUORUM,
    ),
    Mutant(
        "removals-begin-no-epoch",
        "cluster/metadata/elections.py",
        "    elif level >= REMOVALS_BEGIN_AN_EPOCH and not set(partition.replicas) <= set(replicas):\n",
        "    elif False:\n",
        "A leader that stays begins a new leader epoch when a replica is removed.",
        "A broker that is added again, with an empty log, is in sync by its former reports.",
        Scenario.QUORUM,
    ),
    Mutant(
        "removals-begin-an-epoch-too-early",
        "cluster/metadata/elections.py",
        "REMOVALS_BEGIN_AN_EPOCH = 3\n",
        "REMOVALS_BEGIN_AN_EPOCH = 1\n",
        "Another rule of applying a command is used only once a later level is finalized.",
        "Brokers of two releases disagree on a partition's leader epoch.",
        Scenario.QUORUM,
    ),
    Mutant(
        "eligible-while-moves-commit-without-them",
        "cluster/metadata/image_delta.py",
        "        if after.elr and elections.may_commit_without_eligible(after, min_isr, level):\n",
        "        if False:\n",
        "Eligible leader replicas have every committed record (KIP-966).",
        LOST,
        Scenario.QUORUM,
    ),
    Mutant(
        "a-new-level-keeps-the-eligible-of-moves",
        "cluster/metadata/image_builder.py",
        "                    yield from self._delta.change_all(elections.level_changed)\n",
        "                    pass\n",
        "Another commit size counts from a new partition epoch on, without eligible leader replicas.",
        LOST,
        Scenario.QUORUM,
    ),
    Mutant(
        "moves-ask-for-as-many-as-they-have",
        "cluster/metadata/elections.py",
        "    return min(min_isr, replicas - len(partition.adding), replicas - len(partition.removing))\n",
        "    return min(min_isr, replicas)\n",
        "A reassignment asks for no more replicas in sync than there were before it.",
        "A partition of one replica refuses acks=all while it is moved.",
        Scenario.QUORUM,
    ),
    Mutant(
        "in-sync-replicas-are-throttled",
        "replication/follower_connection.py",
        "(in_sync if stream.leader.view.counts_on(self.broker_id) else catching_up).append(stream)\n",
        "(catching_up if stream.leader.view.charge_of(self.broker_id) else in_sync).append(stream)\n",
        "Only replicas outside the ISR are throttled (KIP-352).",
        "acks=all waits for the throttle.",
    ),
    Mutant(
        "the-throttle-forgets-what-was-sent",
        "replication/throttle.py",
        "            self.tokens -= size\n",
        "            pass\n",
        "What is sent to a replica that is being added is charged to the rate.",
        "A reassignment takes the whole network.",
    ),
    Mutant(
        "followers-are-not-charged",
        "replication/throttle.py",
        "            follower.charge(size)\n",
        "            pass\n",
        "What is sent is charged to the leader's share of the follower's rate.",
        "Several leaders overload a new broker.",
    ),
    Mutant(
        "each-leader-takes-the-whole-rate",
        "cluster/broker/throttle_rates.py",
        "rate / leaders[follower]\n",
        "rate\n",
        "The leaders of a follower share its rate.",
        "Several leaders overload a new broker.",
    ),
)
