"""Mutants of the clients' security: SASL, TLS, and credentials on the way to Spark's executors."""

from cordwood.chaos.mutants.mutant import Mutant

FALSE_BROKER = "A client sends its records to a false broker, or takes records from it."
STOLEN = "Credentials reach a host or a process that may not have them."
IMPERSONATED = "A client acts as another user."
CUT_OFF = "Brokers close the connections of a client whose session has ended."

SASL = "client/sasl.py"
TLS = "client/tls.py"
TOKEN_ENDPOINT = "client/token_endpoint.py"
BLOCKING = "client/blocking.py"
POOL = "spark/client/pool.py"
TASKS = "spark/tasks.py"
SOURCE = "spark/source.py"

MUTANTS = (
    Mutant(
        "clients-take-any-nonce",
        SASL,
        "        if not nonce.startswith(self._nonce) or nonce == self._nonce:\n",
        "        if False:\n",
        "A broker's nonce extends the client's own, so that no old exchange can be repeated.",
        FALSE_BROKER,
    ),
    Mutant(
        "clients-take-any-signature",
        SASL,
        '        if not hmac.compare_digest(_decoded(match["signature"]), self._server_signature):\n',
        "        if False:\n",
        "A broker proves that it knows the password that it has taken.",
        FALSE_BROKER,
    ),
    Mutant(
        "clients-take-a-success-without-a-proof",
        SASL,
        "        reply = self._exchange.next(bytes(response.auth_bytes))\n",
        "        reply = self._exchange.next(bytes(response.auth_bytes)) if response.auth_bytes else None\n",
        "An exchange is complete only when both sides have proved themselves.",
        FALSE_BROKER,
    ),
    Mutant(
        "clients-take-few-iterations",
        SASL,
        "        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:\n",
        "        if False:\n",
        "A client shows no proof that is quick to guess a password from.",
        STOLEN,
    ),
    Mutant(
        "refused-bearer-tokens-are-taken",
        SASL,
        "        if self._refusal:\n",
        "        if False:\n",
        "A refusal of a bearer token stays one in the second round.",
        FALSE_BROKER,
    ),
    Mutant(
        "clients-take-certificates-for-other-hosts",
        TLS,
        "        context.check_hostname = self.checks_certificate and self.checks_host_name\n",
        "        context.check_hostname = False\n",
        "A broker's certificate is for the host that the client connects to.",
        FALSE_BROKER,
    ),
    Mutant(
        "clients-follow-redirects-with-their-secret",
        TOKEN_ENDPOINT,
        "urllib.request.HTTPSHandler(context=tls.context()), _NoRedirects)\n",
        "urllib.request.HTTPSHandler(context=tls.context()))\n",
        "A client's secret goes only to the token endpoint that the user names.",
        STOLEN,
    ),
    Mutant(
        "sessions-are-not-renewed",
        BLOCKING,
        "        if self._renew_s is not None and time.monotonic() >= self._renew_s:\n",
        "        if False:\n",
        "A client authenticates again before its session ends.",
        CUT_OFF,
    ),
    Mutant(
        "spark-shares-connections-among-users",
        POOL,
        "    idle = _idle.setdefault((address, settings.security), [])\n",
        "    idle = _idle.setdefault((address, ClientSecurity()), [])\n",
        "An idle connection is used again only by the user that it was authenticated as.",
        IMPERSONATED,
    ),
    Mutant(
        "spark-sends-credentials-beside-tokens",
        TASKS,
        "    return replace(options, client=without_credentials(options.client), archive=None)\n",
        "    return replace(options, archive=None)\n",
        "Executors with delegation tokens get no credentials of the user with a reader.",
        STOLEN,
    ),
    Mutant(
        "spark-sends-all-options-with-a-reader",
        SOURCE,
        '        return {**vars(self), "options": {}} if self._has_reader else vars(self)\n',
        "        return vars(self)\n",
        "Executors get no options with the data source.",
        STOLEN,
    ),
)
