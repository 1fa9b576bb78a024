"""The coverage of the units is measured without the slow ones, summed by package and compared with a floor."""

import re
from collections import Counter

import pytest
from unit_coverage import LEFT_OUT_FUNCTIONS, ROOT, Figure, by_package, is_left_out, table, verdict


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


@pytest.mark.parametrize(("percent", "passes"), [(60.0, True), (59.9, False)])
def test_less_than_the_floor_is_wrong(percent: float, passes: bool) -> None:
    assert (verdict(percent, 60) is None) is passes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tests/storage/test_log.py", False),
        ("tests/storage/test_log_against_a_list.py", True),
        ("tests/storage/test_flipped_bits.py", True),
        ("tests/cluster/metadata/test_any_command.py", True),
        ("tests/docs/test_adr.py", True),
        ("tests/test_tidy.py", True),
    ],
)
def test_random_tests_and_those_of_pages_are_left_out(name: str, expected: bool) -> None:
    assert (ROOT / name).exists()
    assert is_left_out(ROOT / name, "test_it") is expected


def test_functions_that_are_left_out_exist_once() -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = Counter(name for text in texts for name in re.findall(r"def (test_\w+)\(", text))
    assert {name: defined[name] for name in LEFT_OUT_FUNCTIONS} == dict.fromkeys(LEFT_OUT_FUNCTIONS, 1)
