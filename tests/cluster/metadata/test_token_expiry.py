"""The active controller removes expired delegation tokens, once in an interval."""

from cordwood.cluster.metadata.commands import RemoveDelegationTokens
from cordwood.cluster.metadata.credentials import DelegationToken
from cordwood.cluster.metadata.expiry import REMOVED_MAX, TokenExpiry
from cordwood.cluster.metadata.image import Image

NOW_MS = 1_700_000_000_000


def image(*expiries_ms: int) -> Image:
    tokens = [
        DelegationToken(f"token-{number}", "User:a", "User:a", (), 0, NOW_MS * 2, expiry_ms)
        for number, expiry_ms in enumerate(expiries_ms)
    ]
    return Image(delegation_tokens={token.token_id: token for token in tokens})


def test_expired_tokens_go_and_others_stay() -> None:
    removal = TokenExpiry(3600).decide(image(NOW_MS - 1, NOW_MS, NOW_MS + 1), 0, NOW_MS)
    assert removal == RemoveDelegationTokens((("token-0", NOW_MS - 1), ("token-1", NOW_MS)))


def test_it_looks_once_in_an_interval() -> None:
    expiry = TokenExpiry(3600)
    assert expiry.decide(image(NOW_MS), 0, NOW_MS - 1) is None
    assert expiry.decide(image(NOW_MS), 3599, NOW_MS) is None
    assert expiry.decide(image(NOW_MS), 3600, NOW_MS) is not None


def test_many_go_in_several_commands() -> None:
    expiry, all_of_them = TokenExpiry(3600), [NOW_MS] * (2 * REMOVED_MAX)
    first = expiry.decide(image(*all_of_them), 0, NOW_MS)
    assert first is not None
    assert len(first.tokens) == REMOVED_MAX
    assert expiry.decide(image(*all_of_them[:REMOVED_MAX]), 0, NOW_MS) is not None
    assert expiry.decide(image(NOW_MS), 0, NOW_MS) is None
