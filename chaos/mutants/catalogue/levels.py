"""Mutants of feature levels: what is written when, and which brokers are admitted."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

MIXED = "A broker of an older release misses entries of the metadata log, and its image differs."

MUTANTS = (
    Mutant(
        "later-commands-are-proposed",
        "cluster/metadata/proposers.py",
        "    if level > image.metadata_version:\n",
        "    if False:\n",
        "A command of a level is proposed only once that level is finalized (KIP-584).",
        MIXED,
        Scenario.QUORUM,
    ),
    Mutant(
        "levels-count-for-any-start",
        "cluster/metadata/cluster_changes.py",
        "    if sorted(command.brokers) != sorted((broker.id, broker.epoch) for broker in image.brokers.values()):\n",
        "    if False:\n",
        "A level is finalized only for the starts of the brokers that were asked whether they support it.",
        "A broker that restarts with the older release while the level is finalized stays in the cluster.",
        Scenario.QUORUM,
    ),
    Mutant(
        "levels-go-back",
        "cluster/metadata/cluster_changes.py",
        "not image.metadata_version <= level <= LEVEL_MAX",
        "not 0 < level <= LEVEL_MAX",
        "The finalized metadata.version never goes back.",
        MIXED,
        Scenario.QUORUM,
    ),
    Mutant(
        "old-brokers-register",
        "cluster/metadata/image_builder.py",
        "        if why_not := levels.why_not(command.broker_id, delta.rest.metadata_version):\n",
        '        if why_not := "":\n',
        "A broker that does not support the finalized metadata.version cannot register.",
        MIXED,
        Scenario.QUORUM,
    ),
    Mutant(
        "old-voters-are-admitted",
        "cluster/metadata/raft/handshake.py",
        "        if why_not := levels.why_not(broker_id, me.level):\n",
        '        if why_not := "":\n',
        "A voter or observer that does not support the finalized metadata.version is refused by its peers.",
        MIXED,
        Scenario.QUORUM,
    ),
    Mutant(
        "connections-outlast-a-level",
        "cluster/metadata/raft/transport.py",
        "                elif connection.peer is not None and connection.peer.levels.why_not("
        "connection.peer.broker_id, level):\n",
        "                elif False:\n",
        "A connection to a voter that does not support a level ends when the level is finalized.",
        "A voter of the older release stays the active controller.",
        Scenario.QUORUM,
    ),
    Mutant(
        "registrations-have-levels-too-early",
        "cluster/broker/lifecycle.py",
        "                OF_FIRST_RELEASE if level == FIRST_LEVEL else SUPPORTED,\n",
        "                SUPPORTED,\n",
        "A field that the previous release cannot read is written only once a later level is finalized.",
        "A broker of this release cannot join a cluster of the previous one.",
        Scenario.QUORUM,
    ),
    Mutant(
        "moves-have-the-new-rule-at-once",
        "cluster/metadata/elections.py",
        "MOVES_WAIT_FOR_ADDED = 2\n",
        "MOVES_WAIT_FOR_ADDED = 1\n",
        "Another rule of applying a command is used only once a later level is finalized.",
        "Brokers of two releases disagree on a partition's replicas.",
        Scenario.QUORUM,
    ),
    Mutant(
        "silent-brokers-support-everything",
        "cluster/kafka/handlers/update_features.py",
        "        if levels is None:\n",
        "        if levels is None:\n            continue\n        if False:\n",
        "A level is finalized only if every registered broker answers that it supports it.",
        "A broker of the older release that was stopped meanwhile cannot come back.",
        Scenario.QUORUM,
    ),
)
