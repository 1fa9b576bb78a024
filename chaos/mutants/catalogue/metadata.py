"""Mutants of metadata commands: brokers, in-sync sets, configs, and elections by an operator."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

MUTANTS = (
    Mutant(
        "running-brokers-are-unregistered",
        "cluster/metadata/image_builder.py",
        "        if not broker.is_fenced:\n"
        '            raise CommandRefused(ErrorCode.invalid_request, f"Broker {broker.id} is running',
        '        if False:\n            raise CommandRefused(ErrorCode.invalid_request, f"Broker '
        "{broker.id} is running",
        "A broker is unregistered once it is stopped.",
        "A broker that runs is not known.",
        Scenario.QUORUM,
    ),
    Mutant(
        "leaders-propose-sets-without-themselves",
        "cluster/metadata/image_builder.py",
        "            and any(member == leader.id for member, _ in change.isr)\n",
        "",
        "A leader is in its in-sync set (rule 3).",
        "An assertion of the metadata fails.",
        Scenario.QUORUM,
    ),
    Mutant(
        "strangers-are-in-sync",
        "cluster/metadata/image_builder.py",
        "                member in partition.replicas and (member in",
        "                (member in",
        "Only replicas are in sync.",
        "A partition is led by a broker that has nothing of it.",
        Scenario.QUORUM,
    ),
    Mutant(
        "eligible-after-min-isr-was-changed",
        "cluster/metadata/image_builder.py",
        "                if is_about_eligible:\n"
        "                    delta.change_topic(topic, elections.without_eligible)\n",
        "",
        "With another min.insync.replicas nobody out of sync is eligible (KIP-966).",
        "A replica leads that lacks what is committed.",
        Scenario.QUORUM,
    ),
    Mutant(
        "configs-are-changed-unseen",
        "cluster/metadata/image_builder.py",
        "        if configs.get(change.key) not in (change.expected, change.value):\n",
        "        if False:\n",
        "A config is changed from what the client saw.",
        "Of two changes one is lost.",
        Scenario.QUORUM,
    ),
    Mutant(
        "preferred-leaders-out-of-sync",
        "cluster/metadata/elections.py",
        "    if partition.leader == first or first not in partition.isr or not is_alive(first):\n",
        "    if partition.leader == first or not is_alive(first):\n",
        "The preferred replica leads if it is in sync.",
        "A replica leads that lacks what is committed.",
        Scenario.QUORUM,
    ),
    Mutant(
        "unclean-elections-under-a-leader",
        "cluster/metadata/elections.py",
        'leader\'s epoch (KIP-966).\n    """\n    if partition.leader != NO_LEADER:\n        return partition\n',
        'leader\'s epoch (KIP-966).\n    """\n',
        "An unclean election is for a partition without a leader.",
        "All that was acknowledged is gone.",
        Scenario.QUORUM,
    ),
    Mutant(
        "moves-end-before-all-are-in-sync",
        "cluster/metadata/elections.py",
        "    if not is_moving(partition) or not set(target) <= set(partition.isr):\n",
        "    if not is_moving(partition):\n",
        "A move is over once all that it leads to are in sync (KIP-455).",
        "A partition has fewer copies than it should.",
        Scenario.QUORUM,
    ),
)
