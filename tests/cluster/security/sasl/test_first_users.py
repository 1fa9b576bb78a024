"""The first users of a cluster: Kafka's syntax and the short one, and sentences without secrets for mistakes."""

import base64
import hashlib

import pytest

from cordwood.cluster.metadata.credentials import ScramCredential, ScramMechanism
from cordwood.cluster.security.sasl.first_users import FirstUser, UserMistake, first_users
from cordwood.cluster.security.sasl.scram_keys import is_password_of

SHA_256, SHA_512 = ScramMechanism
SALTED = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)).decode()


def accepted(*texts: str) -> dict[tuple[str, ScramMechanism, int], ScramCredential]:
    made = first_users(texts, lambda count: b"r" * count)
    return {
        (user.user, user.mechanism, user.iterations): ScramCredential(
            user.salt, user.stored_key, user.server_key, user.iterations
        )
        for user in made
    }


@pytest.mark.parametrize(
    ("text", "password", "keys"),
    [
        ("admin=secret", "secret", [("admin", SHA_256, 4096), ("admin", SHA_512, 4096)]),
        ("admin=a=b", "a=b", [("admin", SHA_256, 4096), ("admin", SHA_512, 4096)]),
        ("admin=[password=secret]", "secret", [("admin", SHA_256, 4096), ("admin", SHA_512, 4096)]),
        ("SCRAM-SHA-256=[name=alice,password=secret]", "secret", [("alice", SHA_256, 4096)]),
        ("SCRAM-SHA-512=[name=alice,iterations=8192,password=x]", "x", [("alice", SHA_512, 8192)]),
        ('SCRAM-SHA-256=[name="a,b",password="c,d=]"]', "c,d=]", [("a,b", SHA_256, 4096)]),
        ('SCRAM-SHA-256=[name=alice,password=secret,salt="c2FsdA=="]', "secret", [("alice", SHA_256, 4096)]),
        (
            f'SCRAM-SHA-256=[name=alice,salt="c2FsdA==",saltedpassword="{SALTED}",iterations=4096]',
            "secret",
            [("alice", SHA_256, 4096)],
        ),
    ],
)
def test_each_form_makes_credentials(text: str, password: str, keys: list[tuple[str, ScramMechanism, int]]) -> None:
    found = accepted(text)
    assert list(found) == keys
    for (_, mechanism, _), credential in found.items():
        assert is_password_of(password, credential, mechanism)
        assert not is_password_of(password + "x", credential, mechanism)


def test_the_last_of_two_counts() -> None:
    found = accepted("admin=one", "SCRAM-SHA-256=[name=admin,password=two]")
    assert len(found) == 2
    assert is_password_of("two", found["admin", SHA_256, 4096], SHA_256)
    assert is_password_of("one", found["admin", SHA_512, 4096], SHA_512)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("TopSecret", "is written as"),
        ("=TopSecret", "needs a name"),
        ("admin=", "needs either a password"),
        ("SCRAM-SHA-256=[password=TopSecret]", "needs a name"),
        ("SCRAM-SHA-256=[name=alice]", "needs either a password"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,saltedpassword=c2FsdA==]", "needs either a password"),
        ("SCRAM-SHA-256=[name=alice,saltedpassword=c2FsdA==]", "needs its salt"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,iterations=many]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,password=TopSecret]", "each at most once"),
        ("SCRAM-SHA-256=[name=alice,color=TopSecret]", "fields are"),
        ("SCRAM-SHA-256=[name=alice,password=TopSecret,salt=TopSecret]", "in base64"),
    ],
)
def test_a_mistake_gets_a_sentence_without_the_secret(text: str, said: str) -> None:
    with pytest.raises(UserMistake, match=said) as mistake:
        first_users([text], bytes)
    assert "TopSecret" not in str(mistake.value)


def test_secrets_are_in_no_repr() -> None:
    user = FirstUser("alice", SHA_256, 4096, b"salt-bytes", "TopSecret", b"")
    shown = repr(user) + repr(user.upsertion()) + repr(first_users(["a=TopSecret"], bytes))
    assert "alice" in shown
    assert not any(secret in shown for secret in ("TopSecret", "salt-bytes", "stored_key", "server_key", "salt="))
