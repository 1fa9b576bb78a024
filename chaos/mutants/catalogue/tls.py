"""Mutants of TLS: handshakes, certificates that change, and who a certificate belongs to."""

from cordwood.chaos.mutants.mutant import Mutant

GETS_IN = "A client is somebody else, or gets in without proof."

MUTANTS = (
    Mutant(
        "a-client-certificate-is-not-required",
        "cluster/security/tls.py",
        '"required": ssl.CERT_REQUIRED}',
        '"required": ssl.CERT_OPTIONAL}',
        "A listener with ssl.client.auth=required has no client without a certificate.",
        GETS_IN,
    ),
    Mutant(
        "a-certificate-is-an-identity-before-sasl",
        "cluster/security/tls.py",
        "        if certificate is None or self.options.is_sasl:\n",
        "        if certificate is None:\n",
        "On a SASL_SSL listener the identity comes from SASL alone.",
        GETS_IN,
    ),
    Mutant(
        "a-comma-in-a-name-ends-it",
        "cluster/security/distinguished_name.py",
        "frozenset(',=+<>#;\"\\\\')",
        "frozenset('=+<>#;\"\\\\')",
        "A comma in a value of a distinguished name is escaped.",
        GETS_IN,
    ),
    Mutant(
        "a-mapping-rule-matches-a-part",
        "cluster/security/certificate_rules.py",
        "self.pattern.fullmatch(name)",
        "self.pattern.match(name)",
        "A rule of ssl.principal.mapping.rules matches the whole name (KIP-371).",
        GETS_IN,
    ),
    Mutant(
        "a-faulty-certificate-is-taken",
        "cluster/security/tls.py",
        "            if loaded.expires_at_s * 1000 <= self._wall_clock():\n",
        "            if not loaded.subject:\n",
        "A reload refuses a certificate that has expired, and the former one stays.",
        "No client can connect any more.",
    ),
    Mutant(
        "unsent-bytes-of-tls-are-not-counted",
        "cluster/security/tls_transport.py",
        "        return self._backlog_bytes + unsent\n",
        "        return unsent\n",
        "The bytes that a client does not take are counted (ADR 26).",
        "A client that reads nothing makes the broker hold any amount of memory.",
    ),
    Mutant(
        "a-client-hello-has-any-length",
        "cluster/security/tls_transport.py",
        "            if self._hello[5] != 1 or int.from_bytes(self._hello[6:9]) > HELLO_BYTES_MAX:\n",
        "            if self._hello[5] != 1:\n",
        "A ClientHello is refused before OpenSSL allocates what it announces.",
        "Nine bytes of a stranger take 128 KiB.",
    ),
    Mutant(
        "a-failed-handshake-gets-no-alert",
        "cluster/security/tls_transport.py",
        "            self._plain.write(self._hello)\n",
        "            pass\n",
        "A client whose handshake fails gets the alert that says why.",
        "A client sees a connection that is closed for no reason.",
    ),
    Mutant(
        "a-handshake-counts-for-no-limit",
        "cluster/kafka/server.py",
        "        return len(self._connections) + len(self._shaking)\n",
        "        return len(self._connections)\n",
        "Connections in their handshake count for max.connections.",
        "Strangers take all file descriptors.",
    ),
)
