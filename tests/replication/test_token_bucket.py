"""Token bucket: use up to the rate, a burst, a debt beyond it, and changes of the rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.replication.token_bucket import BURST_S, UNLIMITED, TokenBucket

RATE = 100.0


def test_a_burst_comes_at_once_and_the_rest_is_a_debt() -> None:
    bucket = TokenBucket.full(RATE, now=0.0)
    bucket.charge(RATE * BURST_S, 0.0)
    assert bucket.debt_s(0.0) == 0
    bucket.charge(0.5 * RATE, 0.0)
    assert bucket.debt_s(0.0) == pytest.approx(0.5)
    assert bucket.debt_s(0.3) == pytest.approx(0.2)
    assert bucket.debt_s(0.6) == 0


def test_an_idle_bucket_saves_no_more_than_a_burst() -> None:
    bucket = TokenBucket.full(RATE, now=0.0)
    bucket.charge(3 * RATE, 1000.0)
    assert bucket.debt_s(1000.0) == pytest.approx(3 - BURST_S)


def test_a_bucket_without_a_burst_saves_nothing() -> None:
    bucket = TokenBucket(RATE, burst=0.0)
    bucket.charge(RATE, 1000.0)
    assert bucket.debt_s(1000.0) == pytest.approx(1.0)


def test_a_debt_stays_owed_at_another_rate() -> None:
    bucket = TokenBucket.full(RATE, now=0.0)
    bucket.charge(3 * RATE, 0.0)
    bucket.set_rate(10 * RATE, 0.0)
    assert bucket.debt_s(0.0) == pytest.approx(0.2)
    assert bucket.available(0.25) == 0.5 * RATE


def test_a_higher_rate_saves_up_from_the_change_on() -> None:
    bucket = TokenBucket.full(0.1 * RATE, now=0.0)
    bucket.set_rate(RATE, 5.0)
    bucket.charge(0.2 * RATE, 5.0)
    assert bucket.debt_s(5.0) == pytest.approx(0.1)


def test_an_unlimited_rate_counts_nothing() -> None:
    bucket = TokenBucket()
    bucket.charge(1 << 40, 0.0)
    assert bucket.debt_s(0.0) == 0
    assert bucket.available(1.0) == UNLIMITED
    bucket.set_rate(RATE, 100.0)
    assert bucket.available(100.5) == 0.5 * RATE


def test_no_rate_allows_nothing() -> None:
    bucket = TokenBucket.full(RATE, now=0.0)
    bucket.set_rate(0, 1.0)
    assert bucket.available(100.0) == 0


@given(
    st.integers(1, 1 << 30),
    st.lists(st.tuples(st.floats(0, 10), st.integers(1, 1 << 20)), min_size=1, max_size=50),
)
def test_a_rate_holds_over_any_time_but_for_a_burst_and_the_last_charge(
    rate: int, asked: list[tuple[float, int]]
) -> None:
    bucket, now, sent = TokenBucket(rate), 0.0, 0
    for pause, batch in asked:
        now += pause
        if bucket.available(now) > 0:
            assert sent <= rate * (now + BURST_S)
            bucket.charge(batch, now)
            sent += batch


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 2)), min_size=1, max_size=60),
    st.floats(1, 1e4),
)
def test_a_client_that_waits_for_its_debt_has_its_rate(uses: list[tuple[float, float]], rate: float) -> None:
    bucket, now, used, last = TokenBucket.full(rate, 0.0), 0.0, 0.0, 0.0
    for amount, pause in uses:
        bucket.charge(amount, now)
        used, last = used + amount, amount
        now += bucket.debt_s(now) + pause
        assert used - last <= rate * (now + BURST_S) * (1 + 1e-9) + 1e-6
    assert used <= rate * (now + BURST_S) * (1 + 1e-9) + 1e-6
