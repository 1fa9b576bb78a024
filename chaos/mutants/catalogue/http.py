"""Mutants of access to HTTP: who sends a request, and what it may do."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

ACCESS, SESSIONS, ATTEMPTS = (f"cluster/http/security/{name}.py" for name in ("access", "sessions", "attempts"))
STRANGER = "A client without valid credentials is served."
FORGED = "A page of another site changes something in the name of a user who is logged in."
REVOKED = "A client whose right has been taken back goes on."
GUESSED = "A stranger guesses passwords without a limit."
BEYOND = "A user sees or changes what its rights do not cover."

MUTANTS = (
    Mutant(
        "http-needs-no-login",
        ACCESS,
        "        if self.is_required:\n",
        "        if self.is_required and request.method in SAFE_METHODS:\n",
        "Where a login is required, no request is served without one.",
        STRANGER,
    ),
    Mutant(
        "csrf-tokens-are-not-compared",
        ACCESS,
        'not session.is_csrf_token(request.headers.get(CSRF_HEADER, ""))',
        "CSRF_HEADER not in request.headers",
        "A change in a session needs the session's own CSRF token.",
        FORGED,
    ),
    Mutant(
        "wrong-tokens-fall-through",
        ACCESS,
        "        if given is not None:\n",
        '        if given is not None and "Cookie" not in request.headers:\n',
        "Credentials that are wrong are refused, whatever else a request has.",
        STRANGER,
    ),
    Mutant(
        "passwords-go-over-plain-networks",
        ACCESS,
        "        if not (request.secure or self._without_tls or is_loopback(host) or host in LOOPBACK_NAMES):\n",
        "        if not (request.secure or self._without_tls or host):\n",
        "Passwords and tokens are not accepted without TLS from another machine.",
        "Others on the network read a password or a token.",
    ),
    Mutant(
        "logins-at-brokers-that-lag",
        ACCESS,
        "        if self._is_gated and not self._is_current():\n",
        "        if not self._is_gated:\n",
        "A broker that does not know the newest users and ACLs refuses everyone.",
        REVOKED,
    ),
    Mutant(
        "sessions-survive-their-password",
        SESSIONS,
        "        if is_late or self._credentials_of(session.principal.name) != session.credentials:\n",
        "        if is_late or self._credentials_of(session.principal.name) is None:\n",
        "A session ends when the user's credential changes.",
        REVOKED,
    ),
    Mutant(
        "sessions-have-no-end",
        SESSIONS,
        "        is_late = now >= session.ends_at or now - session.used_at >= IDLE_S\n",
        "        is_late = now - session.used_at >= IDLE_S\n",
        "A session ends with its lifetime, however much it is used.",
        REVOKED,
    ),
    Mutant(
        "concurrent-guesses-do-not-count",
        ATTEMPTS,
        "            self._by_user.take((network, user), now)\n",
        "",
        "An attempt counts from its beginning, so that concurrent ones do not exceed the limit.",
        GUESSED,
    ),
    Mutant(
        "strangers-lock-users-out",
        ATTEMPTS,
        "        wait_s = max(self._by_address.wait_s(network, now), self._by_user.wait_s((network, user), now))\n",
        '        network = ""\n'
        "        wait_s = max(self._by_address.wait_s(network, now), self._by_user.wait_s((network, user), now))\n",
        "Failures at one address refuse no login at another.",
        "A user cannot log in because a stranger has guessed.",
    ),
    Mutant(
        "own-logins-give-more-guesses",
        ATTEMPTS,
        "        self._by_user.forget((network, user))\n",
        "        self._by_user = Allowance(5, 15.0)\n",
        "A login as one user gives no further guesses of another.",
        GUESSED,
    ),
    Mutant(
        "routes-check-no-rights",
        "cluster/http/route.py",
        "        for right in self.requires:\n",
        "        for right in self.requires[1:]:\n",
        "A route checks each right that it requires.",
        BEYOND,
    ),
    Mutant(
        "lists-have-all-topics",
        "cluster/http/context.py",
        " if sees(DESCRIBE_TOPIC, name)]\n",
        " if name or sees(DESCRIBE_TOPIC, name)]\n",
        "A list leaves out what the client may not describe.",
        BEYOND,
    ),
    Mutant(
        "strangers-cut-off-users",
        "cluster/http/server.py",
        "        for oldest in sorted(connections, key=self._proved.__contains__)[:count] if count else ():\n",
        "        for oldest in connections[:count]:\n",
        "A new connection takes the place of a stranger's before that of a user.",
        "A stranger ends the streams of users by connecting.",
    ),
    Mutant(
        "streams-go-on-after-their-token",
        "cluster/http/security/access.py",
        "return self._proved(given).principal == proved.principal",
        "return True",
        "A stream ends with the token that opened it.",
        "Records are sent to a client whose token is removed.",
        Scenario.BROKERS,
    ),
    Mutant(
        "streams-go-on-after-the-end-of-their-token",
        "cluster/http/security/access.py",
        "        if proved.expires_at_ms is not None and self._wall_clock() >= proved.expires_at_ms:\n"
        "            return False\n",
        "",
        "A stream ends with the token that opened it.",
        "Records are sent to a client whose token has expired.",
        Scenario.BROKERS,
    ),
    Mutant(
        "sessions-have-the-password-of-later",
        "cluster/http/security/access.py",
        "        credentials = self._credentials_of(user)\n"
        "        principal = await self._principal(user, password, host)\n",
        "        principal = await self._principal(user, password, host)\n"
        "        credentials = self._credentials_of(user)\n",
        "A session has the credentials that were checked.",
        "A session goes on with a password that was changed.",
        Scenario.BROKERS,
    ),
    Mutant(
        "lags-end-at-open-transactions",
        "cluster/http/offsets.py",
        "    return await _of_leaders(context).known(places, LATEST, READ_UNCOMMITTED)\n",
        "    return await _of_leaders(context).known(places, LATEST)\n",
        "The lag of a group counts records of open transactions, as in Kafka's tool.",
        "Behind a hanging transaction the console shows groups without a lag.",
        Scenario.BROKERS,
    ),
    Mutant(
        "described-lags-end-at-open-transactions",
        "cluster/cli/group.py",
        "_still_there(admin, names), IsolationLevel.READ_UNCOMMITTED)\n",
        "_still_there(admin, names))\n",
        "The lag of a group counts records of open transactions, as in Kafka's tool.",
        "`cordwood group describe` shows a negative lag of a group that reads uncommitted records.",
        Scenario.BROKERS,
    ),
)
