"""The identity provider's public keys: a JSON Web Key Set (RFC 7517), and when it is read again. Pure."""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey

from cordwood.cluster.security.bearer import TokenRefused
from cordwood.cluster.security.jwt import ALGORITHMS, CURVES, UnknownKey

JWKS_BYTES_MAX = 1 << 20
KEYS_MAX = 100
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 16384

_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"})
"""Members of a private or shared key: a key that is published with them is no secret."""


class UnusableKeys(Exception):
    """The answer is not a JSON Web Key Set: a sentence for the log."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The usable keys of a set, by their id. `ignored` has a sentence for each of the others."""

    by_id: Mapping[str, tuple[Key, ...]]
    nameless: tuple[Key, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.nameless) + sum(map(len, self.by_id.values()))

    def find(self, key_id: str | None, algorithm: str) -> Key:
        """Return the key for a token's header. Raises UnknownKey.

        A token without a key id is accepted only if one key fits its algorithm, so that no key is tried out.
        """
        if key_id is None:
            everyone = [*self.nameless, *(key for keys in self.by_id.values() for key in keys)]
            fitting = [key for key in everyone if _fits(key, algorithm)]
        else:
            fitting = [key for key in self.by_id.get(key_id, ()) if _fits(key, algorithm)]
        if len(fitting) == 1:
            return fitting[0]
        if key_id is None and fitting:
            raise TokenRefused("the token names no key, and more than one fits its algorithm")
        raise UnknownKey("the token's key is not one of the identity provider's")


def parse(text: bytes) -> Keys:
    """Parse a key set. Keys of other types and for other uses are ignored. Raises UnusableKeys."""
    if len(text) > JWKS_BYTES_MAX:
        raise UnusableKeys(f"it is larger than {JWKS_BYTES_MAX} bytes")
    try:
        keys = json.loads(text.decode())["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnusableKeys('it is not a JSON object with "keys"') from None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise UnusableKeys(f'"keys" is not a list of at most {KEYS_MAX} keys')
    by_id: dict[str, tuple[Key, ...]] = {}
    nameless: list[Key] = []
    ignored: list[str] = []
    for number, one in enumerate(keys):
        try:
            key, key_id = _key(one), one.get("kid")
        except _Ignored as reason:
            ignored.append(f"key {number} is ignored: {reason}")
            continue
        if key_id is None:
            nameless.append(key)
        else:
            by_id[key_id] = (*by_id.get(key_id, ()), key)
    return Keys(by_id, tuple(nameless), tuple(ignored))


class _Ignored(Exception):
    pass


def _key(one: Any) -> Key:
    if not isinstance(one, dict):
        raise _Ignored("it is not a JSON object")
    if one.get("kty") not in ("RSA", "EC", "OKP"):
        raise _Ignored("its type is not RSA, EC or OKP")
    if not isinstance(one.get("kid", ""), str):
        raise _Ignored("its id is not a text")
    operations = one.get("key_ops", ["verify"])
    if one.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise _Ignored("it is not for signatures")
    algorithm = one.get("alg", "RS256")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise _Ignored("its algorithm is not supported")
    if _PRIVATE & one.keys():
        raise _Ignored("it is not a public key")
    try:
        key = JWKRegistry.import_key({name: one[name] for name in one if name not in ("key_ops", "use")})
        if isinstance(key, RSAKey) and not RSA_BITS_MIN <= key.public_key.key_size <= RSA_BITS_MAX:
            raise _Ignored(f"an RSA key must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _Ignored("its members are invalid") from error
    if not any(_fits(key, algorithm) for algorithm in ALGORITHMS):
        raise _Ignored("its curve is not supported")
    return key


def _fits(key: Key, algorithm: str) -> bool:
    """Return whether the algorithm is one of the key's type, curve and own `alg`."""
    if key.alg is not None and key.alg != algorithm:
        return False
    if isinstance(key, RSAKey):
        return algorithm in ALGORITHMS and algorithm not in CURVES
    return isinstance(key, ECKey | OKPKey) and key.curve_name == CURVES.get(algorithm)


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """How often the key set is read, in seconds."""

    refresh_s: float
    backoff_s: float
    backoff_max_s: float


class KeyCache:
    """The newest key set, and the time of its next reading. Fed by `JwksReader`.

    Before the first set, every token is refused. If a reading fails, the keys before stay.
    """

    def __init__(self, times: RefreshTimes, rng: random.Random) -> None:
        self._times, self._rng = times, rng
        self._keys: Keys | None = None
        self._failures = 0
        self._read_at_s = -math.inf
        self.next_s = -math.inf
        """The loop's time of the next reading."""
        self.came_forward: Callable[[], None] = lambda: None
        """Called when the next reading becomes due sooner."""

    def find(self, key_id: str | None, algorithm: str) -> Key:
        """Return the key for a token's header. Raises TokenRefused. An unknown key makes the next reading come soon."""
        if self._keys is None:
            raise TokenRefused("the broker has no keys of the identity provider yet: try again later")
        try:
            return self._keys.find(key_id, algorithm)
        except UnknownKey:
            # Made-up key ids must not make this broker flood the provider: there is one reading for all of them.
            soonest_s = self._read_at_s + self._times.backoff_max_s
            if soonest_s < self.next_s:
                self.next_s = soonest_s
                self.came_forward()
            raise

    def read(self, keys: Keys, now_s: float) -> None:
        """Take a key set that was read."""
        self._keys, self._failures, self._read_at_s = keys, 0, now_s
        self.next_s = now_s + self._times.refresh_s

    def failed(self, now_s: float) -> None:
        """Record a reading that failed: the next one comes after a pause, which grows with each failure."""
        doubled_s = self._times.backoff_s * 2 ** min(self._failures, 20)
        self._failures, self._read_at_s = self._failures + 1, now_s
        self.next_s = now_s + min(doubled_s, self._times.backoff_max_s) * self._rng.uniform(0.8, 1.0)
