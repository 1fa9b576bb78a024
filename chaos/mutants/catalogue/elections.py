"""Mutants of leader election: the leader after a broker failed, came back, or lost its disk."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

LOST = "A replica leads that lacks what is committed."

MUTANTS = (
    Mutant(
        "same-epoch-for-the-next-leader",
        "cluster/metadata/elections.py",
        "        leader_epoch=partition.leader_epoch + 1,\n",
        "        leader_epoch=partition.leader_epoch,\n",
        "Every leader has an epoch of its own (rule 3).",
        "Two brokers lead in one epoch, or nobody takes the lead.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "same-partition-epoch-after-a-change",
        "cluster/metadata/elections.py",
        "    return replace(partition, isr=isr, elr=elr, partition_epoch=partition.partition_epoch + 1)\n\n\n"
        "def without_eligible",
        "    return replace(partition, isr=isr, elr=elr)\n\n\ndef without_eligible",
        "Every change of the in-sync set has an epoch of its own (rule 7).",
        "An assertion of the metadata fails.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "anyone-alive-may-lead",
        "cluster/metadata/elections.py",
        "    eligible = next(filter(may_lead, elr), None)\n",
        "    eligible = next(filter(may_lead, partition.replicas), None)\n",
        "Nobody leads who was not last in sync (promise 5).",
        LOST,
        Scenario.REPLICAS,
    ),
    Mutant(
        "eligible-without-being-needed",
        "cluster/metadata/elections.py",
        "    if len(isr) < min_isr and broker not in isr:\n",
        "    if broker not in isr:\n",
        "Who goes is eligible only while nothing is committed without it (KIP-966).",
        LOST,
        Scenario.REPLICAS,
    ),
    Mutant(
        "eligible-for-ever",
        "cluster/metadata/elections.py",
        "    elr: Assignment = ()\n    if len(isr) < min_isr:\n",
        "    elr: Assignment = ()\n    if True:\n",
        "Nobody is eligible once enough others are in sync (KIP-966).",
        LOST,
        Scenario.REPLICAS,
    ),
    Mutant(
        "the-wiped-are-eligible",
        "cluster/metadata/elections.py",
        "    isr, elr = _but(partition.isr, broker), _but(partition.elr, broker)\n    settled",
        "    isr, elr = _but(partition.isr, broker), partition.elr or partition.isr\n    settled",
        "A replica that lost its disk leads nothing (rule 8).",
        LOST,
        Scenario.REPLICAS,
    ),
    Mutant(
        "the-wiped-stay-in-sync",
        "cluster/metadata/image_builder.py",
        "        if known is not None and _is_directory_missing(known.log_dirs, command.log_dirs):\n",
        "        if False:\n",
        "A broker that comes with another disk has nothing (rule 8).",
        LOST,
        Scenario.REPLICAS,
    ),
    Mutant(
        "no-new-epoch-after-a-loss",
        "cluster/metadata/elections.py",
        "    if settled.leader == NO_LEADER or settled.leader_epoch > partition.leader_epoch:\n"
        "        return settled\n",
        "    return settled\n",
        "A leader learns that a follower lost its copy by a new epoch (rule 8).",
        "A leader counts on what a follower had before.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "restarts-keep-the-lead",
        "cluster/metadata/image_builder.py",
        "        if known is not None:\n            self._fence(known)\n        least",
        "        least",
        "A new incarnation is fenced until it is ready, and leads nothing that the one before led (KIP-841).",
        "A leader that was restarted goes on in the epoch of before.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "late-commands-of-former-incarnations",
        "cluster/metadata/image_builder.py",
        "        if broker.epoch != command.broker_epoch:\n",
        "        if False:\n",
        "A command about an earlier incarnation is refused.",
        "A broker is unfenced, or changes in-sync sets, by what its former self has sent.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "the-last-one-leaves",
        "cluster/metadata/elections.py",
        "    isr = _but(partition.isr, broker) or partition.isr\n",
        "    isr = _but(partition.isr, broker)\n",
        "The last that was in sync stays so, for it has what is committed (KIP-966).",
        "A partition never has a leader again.",
        Scenario.REPLICAS,
    ),
    Mutant(
        "the-fenced-stay-in-sync",
        "cluster/metadata/elections.py",
        "    in_sync_and_alive = tuple(filter(may_lead, isr))\n    if in_sync_and_alive:\n"
        "        return _led(partition, in_sync_and_alive[0], in_sync_and_alive, elr)\n",
        "    in_sync_and_alive = tuple(filter(may_lead, isr))\n    if in_sync_and_alive:\n"
        "        return _led(partition, in_sync_and_alive[0], isr, elr)\n",
        "Only who is alive is in sync (KIP-841).",
        "A new leader waits for brokers that are gone.",
        Scenario.REPLICAS,
    ),
)
