"""Starts of share groups: parsed texts of `share.auto.offset.reset`."""

import pytest

from cordwood.cluster.config.offset_reset import lookback_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("earliest", None),
        ("latest", None),
        ("by_duration:PT0S", 0),
        ("by_duration:PT1.5S", 1_500),
        ("by_duration:P1D", 86_400_000),
        ("by_duration:P1DT2H3M4S", 93_784_000),
    ],
)
def test_a_reset_has_a_duration_or_a_name(text: str, ms: int | None) -> None:
    assert lookback_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "none", "by_duration:", "by_duration:P", "by_duration:P1DT", "by_duration:-PT1S", "PT1S"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest or by_duration"):
        lookback_ms(text)
