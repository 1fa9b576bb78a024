"""Bearer tokens: a right one is accepted, and each known way to forge or misuse one is refused."""

import json
from typing import Any

import pytest
from identity_provider import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    claims,
    curve_key,
    key_set_text,
    rsa_key,
    signed,
    token,
    unsigned,
    with_shared_secret,
)
from joserfc.jwk import Key

from cordwood.cluster.security.bearer import BearerToken, TokenRefused, TokenRules
from cordwood.cluster.security.jwks import parse
from cordwood.cluster.security.jwt import TOKEN_CHARS_MAX, UnknownKey, validate

RULES = TokenRules([AUDIENCE], ISSUER)


def says(text: str, *keys: Key, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> BearerToken:
    return validate(text, parse(key_set_text(*keys)), rules, now_ms)


def refusal(text: str, *keys: Key, rules: TokenRules = RULES, now_ms: int = NOW_MS) -> str:
    with pytest.raises(TokenRefused) as refused:
        says(text, *keys, rules=rules, now_ms=now_ms)
    assert text not in str(refused.value), "a refusal does not quote the token"
    return str(refused.value)


def test_a_right_token_says_who_and_until_when() -> None:
    assert says(token()) == BearerToken("alice", NOW_MS + 330_000, frozenset({"read", "write"}))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_every_rsa_signature_is_known(algorithm: str) -> None:
    assert says(token(alg=algorithm)).subject == "alice"


@pytest.mark.parametrize(
    ("algorithm", "curve"),
    [("ES256", "P-256"), ("ES384", "P-384"), ("ES512", "P-521"), ("EdDSA", "Ed25519"), ("Ed25519", "Ed25519")],
)
def test_every_curve_is_known_and_fits_only_its_own_algorithm(algorithm: str, curve: str) -> None:
    key = curve_key(curve)
    text = token(key=key, alg=algorithm)
    assert says(text, key).subject == "alice"
    other = curve_key("P-384" if curve == "P-256" else "P-256")
    assert "key" in refusal(text, other)


@pytest.mark.parametrize("signature", [b"", b"anything"])
@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, ["RS256"], 1])
def test_a_token_without_a_signature_is_refused(algorithm: Any, signature: bytes) -> None:
    header = {"kid": "first", **({} if algorithm is None else {"alg": algorithm})}
    refusal(unsigned(signature=signature, **header))


@pytest.mark.parametrize("form", ["PEM", "DER"])
def test_a_public_key_is_no_shared_secret(form: Any) -> None:
    public = rsa_key().as_bytes(form, private=False)
    assert "algorithm" in refusal(with_shared_secret(public, kid="first"))
    assert "algorithm" in refusal(with_shared_secret(public))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512", "ES256K", "Ed448", "RS1", "dir", "A128KW"])
def test_an_algorithm_that_is_not_listed_is_refused(algorithm: str) -> None:
    assert "algorithm is not one of" in refusal(unsigned(alg=algorithm, kid="first", signature=b"x"))


def test_a_key_with_an_algorithm_of_its_own_is_for_no_other() -> None:
    keys = parse(key_set_text(rsa_key(), alg="RS256"))
    assert validate(token(), keys, RULES, NOW_MS).subject == "alice"
    with pytest.raises(UnknownKey):
        validate(token(alg="PS256"), keys, RULES, NOW_MS)


def test_a_key_in_the_token_is_not_used() -> None:
    own = rsa_key("own")
    attempts = (
        token(key=own, kid=None, jwk=own.as_dict(private=False)),
        token(key=own, kid="first", jwk=own.as_dict(private=False)),
        token(key=own, kid="first", jku="https://evil.example.org/keys"),
        token(key=own, kid="first", x5u="https://evil.example.org/cert"),
        token(key=own, kid="first", x5c=["MIIB"]),
    )
    for attempt in attempts:
        assert refusal(attempt) == "the token's signature is wrong"


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": ["b64"], "b64": False},
        {"crit": ["unknown"], "unknown": 1},
        {"crit": []},
        {"crit": "kid"},
        {"b64": False},
        {"b64": True},
    ],
)
def test_an_extension_that_must_be_understood_is_refused(header: dict[str, Any]) -> None:
    assert "extension" in refusal(token(**header))


@pytest.mark.parametrize("kind", ["logout+jwt", "dpop+jwt", "secevent+jwt", "JOSE", 7])
def test_a_token_for_another_purpose_is_refused(kind: Any) -> None:
    assert "type" in refusal(token(typ=kind))


@pytest.mark.parametrize("kind", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_types_of_access_tokens_are_accepted(kind: str | None) -> None:
    assert says(token(typ=kind, nonce="of another provider")).subject == "alice"


def test_a_key_id_chooses_the_key() -> None:
    both = (rsa_key(), rsa_key("second"))
    assert says(token(key=rsa_key("second")), *both).subject == "alice"
    assert "signature" in refusal(token(key=rsa_key("second"), kid="first"), *both)
    with pytest.raises(UnknownKey):
        says(token(kid="third"), *both)
    assert "key id" in refusal(token(kid=["first"]), *both)
    assert "more than one" in refusal(token(kid=None), *both)
    assert says(token(kid=None)).subject == "alice"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": None}, "no claim exp"),
        ({"exp": "tomorrow"}, "no claim exp"),
        ({"exp": True}, "no claim exp"),
        ({"exp": 1e300}, "no claim exp"),
        ({"exp": -1}, "no claim exp"),
        ({"exp": NOW_MS // 1000 - 30}, "expired"),
        ({"iat": None}, "no claim iat"),
        ({"iat": NOW_MS // 1000 + 31}, "in the future"),
        ({"nbf": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"nbf": "now"}, "no claim nbf"),
        ({"iss": None}, "issuer"),
        ({"iss": ISSUER.rstrip("/")}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": None}, "audience"),
        ({"aud": "another"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [["cordwood"], 7]}, "audience"),
        ({"aud": {"cordwood": 1}}, "audience"),
        ({"aud": "cordwood-too"}, "audience"),
        ({"sub": None}, "no claim sub"),
        ({"sub": ""}, "no claim sub"),
        ({"sub": ["alice"]}, "no claim sub"),
        ({"sub": "a" * 256}, "no claim sub"),
        ({"sub": "alice\nadmin"}, "no claim sub"),
        ({"scope": 7}, "scope"),
        ({"scope": [7]}, "scope"),
    ],
)
def test_a_wrong_claim_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in refusal(token(claims(**changes)))


def test_the_clock_skew_counts_at_both_ends() -> None:
    now_s = NOW_MS // 1000
    late = token(claims(exp=now_s - 29))
    assert says(late).expires_at_ms == NOW_MS + 1000, "such a token is valid for what is left of the skew"
    assert "expired" in refusal(late, now_ms=NOW_MS + 1000)
    assert says(token(claims(iat=now_s + 30, nbf=now_s + 30))).subject == "alice"
    strict = TokenRules([AUDIENCE], ISSUER, clock_skew_s=0)
    assert "expired" in refusal(token(claims(exp=now_s)), rules=strict)


def test_one_of_several_audiences_is_enough() -> None:
    assert says(token(claims(aud=["other", AUDIENCE]))).subject == "alice"


def test_without_expected_audiences_a_token_for_somebody_is_refused() -> None:
    rules = TokenRules()
    assert "audience" in refusal(token(), rules=rules)
    assert says(token(claims(aud=None, iss="anybody")), rules=rules).subject == "alice"


def test_user_and_scopes_may_be_in_other_claims() -> None:
    rules = TokenRules([AUDIENCE], ISSUER, sub_claim="preferred_username", scope_claim="scp")
    said = says(token(claims(preferred_username="bob", scp=["a", "b"])), rules=rules)
    assert (said.subject, said.scopes) == ("bob", {"a", "b"})
    assert "preferred_username" in refusal(token(), rules=rules)


@pytest.mark.parametrize("claim", ["sub", "exp", "aud", "anything"])
def test_a_repeated_claim_is_refused(claim: str) -> None:
    usual = json.dumps({**claims(), "anything": 1})
    repeated = f'{{"{claim}": {json.dumps(claims().get(claim, 1))}, {usual[1:]}'.encode()
    assert "repeat" in refusal(token(repeated))
    nested = json.dumps(claims()).replace("{", '{"x": {"a": 1, "a": 2}, ', 1).encode()
    assert "repeat" in refusal(token(nested))


def test_a_repeated_parameter_of_the_header_is_refused() -> None:
    header = b'{"alg": "none", "alg": "RS256", "kid": "first"}'
    assert "repeat" in refusal(signed(header, None, rsa_key(), "RS256"))


@pytest.mark.parametrize(
    "payload", [b"[]", b"null", b"", b"{", b'{"exp": NaN}', b'{"exp": Infinity}', b"\xff", b"[" * 20_000, b"1" * 5000]
)
def test_claims_that_are_no_object_are_refused(payload: bytes) -> None:
    refusal(token(payload))


def test_a_header_that_is_no_object_is_refused() -> None:
    for header in (b"[]", b"null", b"{", b"\xff", b"[" * 6000, b"1" * 5000):
        refusal(signed(header, None, rsa_key(), "RS256"))


def test_a_token_that_is_too_long_is_refused() -> None:
    assert "longer" in refusal(token(claims(more="x" * TOKEN_CHARS_MAX)))
    assert "longer" in refusal(token(more="x" * 8000))


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", "a.b.c=", "ä.b.c", "a b.c.d", "a.b.c\n"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        says(text)


def test_any_changed_letter_breaks_a_token() -> None:
    text = token()
    for at in range(0, len(text), 7):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(TokenRefused):
            says(changed)
