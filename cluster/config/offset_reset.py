"""The start of a share group in a partition: `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration."""

import re

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"

_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
_DURATION = re.compile(
    r"P(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?", re.IGNORECASE
)


def lookback_ms(reset: str) -> int | None:
    """Return the duration of a `by_duration:` in ms; None for `earliest` and `latest`.

    Raises ValueError for another text. Its message completes a sentence after "must be".
    """
    if reset in (EARLIEST, LATEST):
        return None
    match = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if match is None or not any(match.groups()) or reset[-1] in "Tt":
        raise ValueError(f"{EARLIEST}, {LATEST} or {BY_DURATION}PnDTnHnMn.nS")
    days, hours, minutes, seconds = match.groups()
    ms = int(days or 0) * _DAY_MS + int(hours or 0) * _HOUR_MS + int(minutes or 0) * _MINUTE_MS
    return ms + int(float(seconds or 0) * _SECOND_MS)
