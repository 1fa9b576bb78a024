"""Mutants of the links between brokers: who is taken for a broker, and whose rights a request has."""

from cordwood.chaos.mutants.mutant import Mutant

POSES = "A client poses as a broker: it reads the log without READ, or writes the metadata."
BORROWS = "A request has the rights of another user, or of the broker that passed it on."

MUTANTS = (
    Mutant(
        "a-client-may-follow",
        "cluster/kafka/dispatch.py",
        "        elif not acts_as_broker(self._services.authorizer, connection.identity):\n",
        "        elif connection.is_broker is None:\n",
        "Only an identity that may do CLUSTER_ACTION sends the frames of brokers.",
        POSES,
    ),
    Mutant(
        "on-behalf-changes-nothing",
        "cluster/kafka/dispatch.py",
        "            connection.act_for(decode_on_behalf(frame))\n",
        "            decode_on_behalf(frame)\n",
        "After ON_BEHALF a connection has the rights of the user alone.",
        BORROWS,
    ),
    Mutant(
        "idle-connections-are-for-all-users",
        "cluster/kafka/cluster_client.py",
        "        found = self._idle.setdefault(identity, defaultdict(list))\n"
        "        self._idle.move_to_end(identity)\n",
        "        found = self._idle.setdefault(THIS_BROKER, defaultdict(list))\n",
        "A connection to another broker serves one identity.",
        BORROWS,
    ),
    Mutant(
        "any-certificate-joins-the-quorum",
        "cluster/metadata/raft/tls.py",
        "        if (reason := self._why_not(certificate)) is not None:\n",
        "        if (reason := self._why_not(certificate)) is not None and not certificate:\n",
        "A certificate of the authority is not enough to take part in the quorum.",
        POSES,
    ),
    Mutant(
        "the-quorum-takes-plaintext",
        "cluster/metadata/raft/transport.py",
        "        return tls is not None and tls.allows_plaintext\n",
        "        return tls is not None\n",
        "A quorum with TLS takes no connection without, unless this is allowed for a change.",
        POSES,
    ),
    Mutant(
        "an-unrenewed-session-stays-open",
        "cluster/kafka/peers.py",
        '                connection.close(f"the session could not be renewed: {error}")\n',
        "                lifetime_s = 0\n",
        "A connection whose authentication fails is closed.",
        "A broker keeps a connection that its peer closes in the middle of a request.",
    ),
    Mutant(
        "a-refused-broker-dials-in-a-loop",
        "cluster/kafka/peers.py",
        "        if failed is not None and self._loop.time() < failed.at_s + DIAL_AGAIN_S:\n",
        "        if failed is not None and not failed.reason:\n",
        "A broker that was refused waits before it dials again.",
        "A wrong password makes ten attempts a second, on each link.",
    ),
    Mutant(
        "a-client-certificate-is-a-brokers",
        "cluster/broker/links.py",
        "        if settings.controller_quorum_secret or identity.principal == own_principal:\n",
        "        if settings.controller_quorum_secret or identity.principal.kind == own_principal.kind:\n",
        "Without a secret, only this broker's principal and super users take part in the quorum.",
        POSES,
    ),
    Mutant(
        "quorum-certificates-are-optional",
        "cluster/broker/links.py",
        "        context.verify_mode = ssl.CERT_REQUIRED\n",
        "        context.verify_mode = ssl.CERT_OPTIONAL\n",
        "Both ends of a quorum connection show a certificate.",
        POSES,
    ),
)
