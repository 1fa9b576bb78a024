"""The load of `bench.grow`: a stall of the disk is in the percentile of all, not in that of the median ten seconds."""

import pytest

from cordwood.bench.grow.load import WINDOW_S, RoundRobinLoad


def test_a_stall_does_not_change_the_typical_percentile() -> None:
    load = RoundRobinLoad("nowhere:1", "topic", partitions=1, per_second=10)
    begin, end = 100.0, 100.0 + 5 * WINDOW_S
    latencies = [(begin + number / 10, 0.3 if 20 <= number < 30 else 0.01) for number in range(int(10 * (end - begin)))]
    load.latencies.extend(latencies)
    assert load.percentile_ms(begin, end, 99) == pytest.approx(300)
    assert load.typical_percentile_ms(begin, end, 99) == pytest.approx(10)
    load.latencies[:] = [(at, 2 * latency) for at, latency in latencies]
    assert load.typical_percentile_ms(begin, end, 99) == pytest.approx(20)
