"""The coverage of the units is summed by package and compared with a floor, except after a failed test."""

import pytest
from unit_coverage import Figure, by_package, table, verdict


def file(covered_lines: int, lines: int, covered_branches: int, branches: int) -> dict[str, dict[str, int]]:
    summary = {
        "covered_lines": covered_lines,
        "num_statements": lines,
        "covered_branches": covered_branches,
        "num_branches": branches,
    }
    return {"summary": summary}


def test_files_are_summed_by_package() -> None:
    files = {
        "storage/log.py": file(8, 10, 1, 2),
        "cluster/kafka/wire.py": file(1, 1, 0, 0),
        "storage/a/b.py": file(0, 5, 0, 3),
    }
    figures = by_package({"files": files})
    assert figures == {"cluster": Figure(1, 1, 0, 0), "storage": Figure(8, 15, 1, 5)}
    assert figures["storage"].percent == 45.0
    assert list(table(figures)) == [
        "package        lines  covered  branches  covered    both",
        "cluster            1   100.0%         0   100.0%  100.0%",
        "storage           15    53.3%         5    20.0%   45.0%",
        "all               16    56.2%         5    20.0%   47.6%",
    ]


@pytest.mark.parametrize(
    ("percent", "is_complete", "passes"), [(60.0, True, True), (59.9, True, False), (10.0, False, True)]
)
def test_only_a_complete_run_can_be_below_the_floor(percent: float, is_complete: bool, passes: bool) -> None:
    assert (verdict(percent, 60, is_complete=is_complete) is None) is passes
