"""The rate limit of failed logins: bounded guesses, bounded memory, and no lock-out of others."""

import pytest

from cordwood.cluster.http.security.attempts import Allowance, LoginAttempts, network_of

STRANGER, HOME = "198.51.100.7", "203.0.113.20"


def guesses(attempts: LoginAttempts, host: str, user: str, now: float, count: int = 1000) -> int:
    """Return how many of so many guesses at one time are made."""
    return sum(attempts.begin(host, user, now) == 0 for _ in range(count))


def test_guesses_of_one_password_are_few() -> None:
    attempts = LoginAttempts()
    assert guesses(attempts, STRANGER, "alice", 0) == 5
    assert guesses(attempts, STRANGER, "alice", 15.0) == 1
    assert sum(guesses(attempts, STRANGER, "alice", 20.0 + second, 10) for second in range(3600)) <= 3600 / 15 + 1


def test_guesses_of_many_names_are_few() -> None:
    attempts = LoginAttempts()
    assert sum(guesses(attempts, STRANGER, f"user-{number}", 0, 1) for number in range(1000)) == 20
    assert sum(guesses(attempts, STRANGER, f"user-{number}", 3.0, 1) for number in range(1000)) == 1


def test_a_stranger_locks_no_user_out_of_another_address() -> None:
    attempts = LoginAttempts()
    for second in range(100):
        guesses(attempts, STRANGER, "alice", second, 10)
    assert attempts.begin(STRANGER, "alice", 100.0) > 0
    assert attempts.begin(HOME, "alice", 100.0) == 0


def test_strangers_at_many_addresses_lock_no_user_out() -> None:
    attempts = LoginAttempts()
    for number in range(1000):
        guesses(attempts, f"198.51.{number // 250}.{number % 250}", "alice", 0, 5)
    assert attempts.begin(HOME, "alice", 0) == 0


def test_the_wait_is_as_long_as_it_says() -> None:
    attempts = LoginAttempts()
    guesses(attempts, STRANGER, "alice", 0)
    wait_s = attempts.begin(STRANGER, "alice", 0)
    assert attempts.begin(STRANGER, "alice", wait_s - 0.01) > 0
    assert attempts.begin(STRANGER, "alice", wait_s) == 0


def test_logins_that_succeed_do_not_count() -> None:
    attempts = LoginAttempts()
    for _ in range(100):
        assert attempts.begin(HOME, "alice", 0) == 0
        attempts.succeeded(HOME, "alice")


def test_a_success_as_one_user_gives_no_further_guesses_of_another() -> None:
    attempts = LoginAttempts()
    made = 0
    for _ in range(100):
        made += guesses(attempts, STRANGER, "victim", 0, 1)
        if attempts.begin(STRANGER, "own", 0) == 0:
            attempts.succeeded(STRANGER, "own")
    assert made == 5


def test_an_attempt_counts_before_its_outcome_is_known() -> None:
    attempts = LoginAttempts()
    concurrent = [attempts.begin(STRANGER, "alice", 0) == 0 for _ in range(100)]
    assert sum(concurrent) == 5


def test_memory_is_bounded() -> None:
    allowance = Allowance(1, 10.0, keys_max=50)
    for number in range(1000):
        allowance.take(number, 0.0)
    assert len(allowance) == 50
    assert allowance.wait_s(999, 0.0) == 10.0


@pytest.mark.parametrize(
    ("host", "other", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("", "10.0.0.1", False),
    ],
)
def test_a_client_has_one_address_of_ipv4_and_a_network_of_ipv6(host: str, other: str, is_same: bool) -> None:
    assert (network_of(host) == network_of(other)) is is_same
