"""Mutants of a partition as its leader, its followers and its clients see it."""

from cordwood.chaos.mutants.mutant import Mutant

SHOWN = "A consumer reads what the next leader may not have."
FOREVER = "A replica never comes into the in-sync set again."

MUTANTS = (
    Mutant(
        "acks-of-the-leader-before-its-flush",
        "replication/partition.py",
        "        if end <= self.kept_end:\n            return False\n",
        "        if end <= self.log.log_end:\n            return False\n",
        "acks=1 is answered once the leader has flushed.",
        "A power cut takes records that were acknowledged.",
    ),
    Mutant(
        "leaders-of-old-epochs-serve",
        "replication/replicas.py",
        "        if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:\n",
        "        if leader_epoch >= 0 and leader_epoch > partition.leader_epoch:\n",
        "A client with an old leader epoch is fenced (KIP-320).",
        "A consumer goes on reading where the log was cut.",
    ),
    Mutant(
        "leaders-of-coming-epochs-serve",
        "replication/replicas.py",
        "        if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:\n",
        "        if leader_epoch >= 0 and leader_epoch < partition.leader_epoch:\n",
        "A broker that lags refuses a client that knows of a later epoch (KIP-320).",
        "A deposed leader serves whoever has heard of the next one.",
    ),
    Mutant(
        "followers-serve-as-leaders",
        "replication/replicas.py",
        "        if partition.view is None:\n            raise PartitionRefused(Refusal.NOT_LEADER)\n"
        "        return partition\n",
        "        return partition\n",
        "Only a leader serves whoever asks for the leader.",
        "A consumer is told of an end that has been passed before.",
    ),
    Mutant(
        "offline-replicas-serve",
        "replication/replicas.py",
        "        if partition.error is not None:\n            raise PartitionRefused(Refusal.OFFLINE)\n",
        "",
        "A replica whose disk failed serves nothing (rule 8).",
        "Records are read that the disk may not have.",
    ),
    Mutant(
        "offline-replicas-take-records",
        "replication/partition.py",
        "        if self.error is not None:\n            raise DiskFailed(str(self.error))\n",
        "",
        "A replica whose disk failed takes nothing (rule 8).",
        "Records are acknowledged that the disk may not have.",
    ),
    Mutant(
        "followers-take-records",
        "replication/partition.py",
        "        if view is None:\n            raise PartitionRefused(Refusal.NOT_LEADER)\n        if must_be_safe",
        "        if must_be_safe and view is not None",
        "Only a leader takes records.",
        "Two brokers give out the same offsets.",
    ),
    Mutant(
        "batches-overtake-a-refused-one",
        "replication/partition.py",
        "            raise PartitionRefused(Refusal.FOLLOWS_REFUSED)\n",
        "            pass\n",
        "What follows a batch that was refused waits until that has come again.",
        "Records of one producer lie in another order than they were sent in.",
    ),
    Mutant(
        "followers-ignore-the-log-start",
        "replication/following.py",
        "        if log_start > log.log_start:\n",
        "        if False:\n",
        "A follower deletes what its leader has deleted (KIP-107).",
        "Deleted records come back with the next leader.",
    ),
)
