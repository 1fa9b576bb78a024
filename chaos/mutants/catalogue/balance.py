"""Mutants of balances and drains: hard goals, cordons, the grace period and the window of moves."""

from cordwood.chaos.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "cordoned-brokers-take-followers-for-leaders",
        "cluster/balance/leaders.py",
        "            followers = self._movable(target, is_leader=False) if may_take else ()\n",
        "            followers = self._movable(target, is_leader=False)\n",
        "A cordoned broker gets no replica (KIP-1066).",
        "A broker that is to be emptied gets records to copy.",
    ),
    Mutant(
        "a-plan-forgets-racks",
        "cluster/balance/layout.py",
        "        if not self.has_racks:\n            return True\n",
        "        return True\n",
        "Replicas of a partition are in as many racks as possible.",
        "One rack has two replicas of a partition, and takes both with it.",
    ),
    Mutant(
        "a-plan-fills-disks",
        "cluster/balance/layout.py",
        "            self.room[broker] = room - sign * partition.size_bytes\n",
        "            self.room[broker] = room\n",
        "A plan copies no more to a broker than its disks have room for.",
        "A disk is full in the middle of the moves.",
    ),
    Mutant(
        "a-plan-uses-cordoned-brokers",
        "cluster/balance/planner.py",
        "    return broker.is_alive and not broker.is_cordoned and broker.broker_id not in leaving\n",
        "    return broker.is_alive and broker.broker_id not in leaving\n",
        "A cordoned broker gets no new replicas.",
        "A broker that is to be removed never becomes empty.",
    ),
    Mutant(
        "a-plan-moves-what-is-moving",
        "cluster/balance/layout.py",
        "                if not partition.is_moving:\n",
        "                if True:\n",
        "A partition whose replicas are being moved is left alone.",
        "A move by hand is replaced by another one.",
    ),
    Mutant(
        "new-topics-ignore-cordons",
        "cluster/metadata/cordons.py",
        "    return ALL_DIRECTORIES in cordoned or len(cordoned) >= max(len(broker.log_dirs), 1)\n",
        "    return False\n",
        "A cordoned broker gets no new replicas.",
        "A topic that is created during a drain undoes it.",
    ),
    Mutant(
        "auto-balance-has-no-grace-period",
        "cluster/proposals/auto_balance.py",
        "            self._alive, self._since_s = alive, now_s\n",
        "            self._alive, self._since_s = alive, now_s - self._grace_s\n",
        "Nothing is moved before the live brokers have been the same for auto.balance.grace.ms.",
        "A restart of a broker copies all of its data.",
    ),
    Mutant(
        "auto-balance-moves-during-moves",
        "cluster/proposals/auto_balance.py",
        "        return not any(is_moving(",
        "        return True or any(is_moving(",
        "The controller plans nothing while replicas are being moved.",
        "Every look adds moves, and their number has no bound.",
    ),
    Mutant(
        "all-moves-begin-at-once",
        "cluster/balance/execution.py",
        "            if is_full:\n",
        "            if False:\n",
        "A broker receives and sends few replicas at a time.",
        "Clients wait while every partition is copied at the same time.",
    ),
)
