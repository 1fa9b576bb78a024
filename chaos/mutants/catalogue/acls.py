"""Mutants of access control: the decision by ACLs, and the requests that must ask for it."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

AUTHORIZER = "cluster/security/acl_authorizer.py"
PRODUCE, FETCH = "cluster/kafka/handlers/produce.py", "cluster/kafka/handlers/fetch.py"

DENY = "A DENY wins over every ALLOW."
HIDDEN = "A client does not learn of topics that it may not describe."
STRANGER = "A client uses what no ACL gives to it."

MUTANTS = (
    Mutant(
        "denials-are-ignored",
        AUTHORIZER,
        "        return allowed & ~denied if is_named else self._without_acls\n",
        "        return allowed if is_named else self._without_acls\n",
        DENY,
        "A client uses what an ACL denies to it.",
        Scenario.BROKERS,
    ),
    Mutant(
        "literal-names-are-prefixes",
        AUTHORIZER,
        "            if length > len(name):\n                break\n"
        "            if (found := self.prefixed.get(name[:length])) is not None:\n                yield found\n",
        "            if length > len(name):\n                break\n"
        "            if (found := self.prefixed.get(name[:length])) is not None:\n                yield found\n"
        "        for length in range(1, len(name)):\n"
        "            if (found := self.literal.get(name[:length])) is not None:\n                yield found\n",
        "An ACL with a literal name is about that name alone.",
        STRANGER,
        Scenario.BROKERS,
    ),
    Mutant(
        "denials-imply-others",
        AUTHORIZER,
        "                denied |= _EVERYTHING if operation is AclOperation.ALL else 1 << operation\n",
        "                denied |= _allowed_by(operation)\n",
        "Only an ALLOW implies other operations: a DENY of READ does not deny DESCRIBE.",
        "A client that may describe a topic cannot.",
        Scenario.BROKERS,
    ),
    Mutant(
        "decisions-stay-after-a-change-of-acls",
        AUTHORIZER,
        "        self._operations.clear()\n        self._any.clear()\n        self._hosts.clear()\n",
        "        self._any.clear()\n        self._hosts.clear()\n",
        "A change of ACLs is in force at the next request.",
        "A client goes on with a right that was revoked.",
        Scenario.BROKERS,
    ),
    Mutant(
        "an-acl-takes-others-with-it",
        AUTHORIZER,
        "        if left:\n            rules[acl.principal, host] = _Rule.of(tuple(left))\n",
        "        if False:\n            rules[acl.principal, host] = _Rule.of(tuple(left))\n",
        "The removal of an ACL leaves the others of the same principal and host.",
        "A DENY is lost, or an ALLOW.",
        Scenario.BROKERS,
    ),
    Mutant(
        "everything-is-allowed-before-the-acls-are-known",
        AUTHORIZER,
        "        if not self.is_ready:\n            return _NOTHING\n",
        "        if not self.is_ready:\n            return _EVERYTHING\n",
        "Before the ACLs are known, only super users may do anything.",
        STRANGER,
        Scenario.BROKERS,
    ),
    Mutant(
        "prefixed-denials-dominate-nothing",
        AUTHORIZER,
        "            or not any((Pattern.PREFIXED, place[1][:length]) in denied for length in of_type.lengths)\n",
        "            or bool(place)\n",
        "A prefixed DENY dominates a longer ALLOW in the decision about any resource (KIP-679).",
        "A client that may write to no topic gets a producer id.",
        Scenario.BROKERS,
    ),
    Mutant(
        "a-name-makes-a-client-the-broker",
        AUTHORIZER,
        "        if identity is THIS_BROKER:\n",
        "        if identity == THIS_BROKER:\n",
        "Only the broker itself has its identity, whatever its name.",
        STRANGER,
        Scenario.BROKERS,
    ),
    Mutant(
        "mapped-addresses-are-other-hosts",
        AUTHORIZER,
        "    return str(mapped or address)\n",
        "    return str(address)\n",
        "An IPv4 client on an IPv6 socket is the same host.",
        "A client avoids a DENY for its address.",
        Scenario.BROKERS,
    ),
    Mutant(
        "transactional-batches-need-no-transactional-id",
        PRODUCE,
        "            if is_transactional and not authorizer.may(",
        "            if False and not authorizer.may(",
        "A transactional batch requires WRITE on the transactional id.",
        "A client writes into the transaction of another one.",
        Scenario.BROKERS,
    ),
    Mutant(
        "refused-topics-join-the-transaction",
        PRODUCE,
        "            is_refused = name is None or not self._may_write(connection, name)\n",
        "            is_refused = name is None\n",
        "A topic that the client may not write to does not become part of its transaction.",
        "A client adds another topic to its transaction, and holds its last stable offset back.",
        Scenario.BROKERS,
    ),
    Mutant(
        "replicas-need-no-right-to-fetch",
        "cluster/kafka/fetch_access.py",
        "            return acts_as_broker(authorizer, identity)\n",
        "            return True\n",
        "A Fetch that claims to be a replica's requires CLUSTER_ACTION.",
        "A client reads topics as a replica.",
        Scenario.BROKERS,
    ),
    Mutant(
        "waiting-fetches-keep-their-right",
        FETCH,
        "        if (authorizer := self._fetching.authorizer) is not None:\n",
        "        if (authorizer := self._fetching.authorizer) is not None and self._timer is None:\n",
        "A fetch that waits is decided again before it returns records.",
        "A client reads records that were written after its right was revoked.",
        Scenario.BROKERS,
    ),
    Mutant(
        "lists-of-topics-have-hidden-ones",
        "cluster/kafka/handlers/metadata.py",
        " if call.may_see(DESCRIBE, TOPIC, topic.name)]\n",
        "]\n",
        HIDDEN,
        "The list of all topics has every name.",
        Scenario.BROKERS,
    ),
    Mutant(
        "unknown-topics-differ-from-hidden-ones",
        "cluster/kafka/handlers/delete_topics.py",
        "            if topic.name is not None and not may_delete_all:\n",
        "            if False:\n",
        HIDDEN,
        "DeleteTopics answers with another code for a topic that does not exist.",
        Scenario.BROKERS,
    ),
)
