"""A foreign suite's failure is allowed only by test id and with a reason."""

from pathlib import Path

import pytest
from suite_verdict import allowed_failures, go_outcomes, judge, librdkafka_outcome


def test_a_failure_off_the_list_is_broken_and_one_on_it_is_allowed() -> None:
    verdict = judge({"a": "failed", "b": "failed", "c": "passed", "d": "skipped"}, {"a": "a reason"})
    assert (verdict.broken, verdict.allowed, verdict.passed, verdict.skipped) == (("b",), ("a",), ("c",), ("d",))


def test_entries_that_pass_or_are_gone_are_named() -> None:
    verdict = judge({"a": "passed"}, {"a": "a reason", "gone": "a reason"})
    assert (verdict.passing, verdict.vanished, verdict.broken) == (("a",), ("gone",), ())


def test_every_line_of_the_list_has_a_reason() -> None:
    assert allowed_failures("# why\n\na::b[1]  since it is so\n") == {"a::b[1]": "since it is so"}
    with pytest.raises(ValueError, match="line 1 gives no reason for a::b"):
        allowed_failures("a::b\n")


def test_our_own_list_can_be_read() -> None:
    assert allowed_failures((Path(__file__).parent / "kafka_python_allowed_failures.txt").read_text())


def test_a_test_in_go_that_has_no_end_has_failed() -> None:
    lines = [
        '{"Action":"start"}',
        '{"Action":"run","Test":"T"}',
        '{"Action":"run","Test":"T/a"}',
        '{"Action":"output","Test":"T/a","Output":"a word"}',
        '{"Action":"run","Test":"T/b"}',
        '{"Action":"skip","Test":"T/b"}',
        '{"Action":"pass","Test":"T/a"}',
    ]
    assert go_outcomes(lines) == {"T": "failed", "T/a": "passed", "T/b": "skipped"}


def test_a_number_of_librdkafka_is_skipped_only_if_all_its_tests_are() -> None:
    passed, skipped = "|[32m 0102_static |     PASSED |  52.9s", "|[36m 0102_static_mock |    SKIPPED |   0.0s"
    assert librdkafka_outcome(f"{passed}\n{skipped}", "0102", 0) == "passed"
    assert librdkafka_outcome(skipped, "0102", 0) == "skipped"
    assert librdkafka_outcome(f"{passed}\n{skipped}", "0102", 1) == "failed"
    assert librdkafka_outcome(passed, "0102", None) == "failed"
