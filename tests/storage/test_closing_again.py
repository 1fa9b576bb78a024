"""A log that could not be closed is closed again: the checkpoint has everything that the first one had to have."""

import contextlib

import pytest
from log_fixture import LogFixture


@pytest.mark.parametrize("file", ["leader-epochs", "recovery"])
def test_leader_epochs_are_kept_if_the_first_attempt_fails(file: str) -> None:
    log = LogFixture().append("a", "b").flush().checkpoint()
    log.leader_epoch = 5
    log.append("c").flush()
    expected = [tuple(entry) for entry in log.log.epochs]
    log.disk.faults.fail_next_write(file)
    with contextlib.suppress(OSError):
        log.log.close()
    log.log.close()
    log.reopen()
    assert ([tuple(entry) for entry in log.log.epochs], log.damage) == (expected, [])
