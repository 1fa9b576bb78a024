"""The run mark of a log directory: whether unflushed records survived the end of the last run."""

import random

import pytest

from cordwood.chaos.sim.disk import UNLIMITED_BYTES, SimulatedDisk
from cordwood.replication.run_mark import LOST, RUN_FILE, RunMark
from cordwood.storage import checkpoint
from cordwood.storage.disk import sync_directory


class Machine:
    """A machine with one log directory and successive broker runs."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(1))
        for changed in self.disk.make_directories("/data"):
            sync_directory(self.disk, changed)
        self.is_new = True

    def run(self) -> RunMark:
        mark = RunMark(self.disk, "/data", self.disk.boot_id, is_new=self.is_new)
        self.is_new = False
        return mark


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_new_directory_has_lost_nothing(machine: Machine) -> None:
    assert not machine.run().has_lost_memory


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_stopped_broker_has_lost_nothing(machine: Machine, power_fails: bool) -> None:
    machine.run().stopped()
    if power_fails:
        machine.disk.power_cut(0)
    assert not machine.run().has_lost_memory


def test_a_killed_broker_has_lost_nothing(machine: Machine) -> None:
    machine.run()
    machine.disk.kill()
    assert not machine.run().has_lost_memory


def test_a_power_cut_loses_what_was_in_memory_until_the_others_know(machine: Machine) -> None:
    machine.run()
    machine.disk.power_cut(0)
    assert machine.run().has_lost_memory
    machine.disk.kill()
    assert machine.run().has_lost_memory, "the others do not know yet"
    mark = machine.run()
    mark.declared()
    assert not mark.has_lost_memory
    machine.disk.kill()
    assert not machine.run().has_lost_memory


def test_a_stop_before_the_others_know_does_not_hide_it(machine: Machine) -> None:
    machine.run()
    machine.disk.power_cut(0)
    machine.run().stopped()
    assert machine.run().has_lost_memory


def test_a_directory_of_an_earlier_version_may_have_lost_something(machine: Machine) -> None:
    machine.is_new = False
    assert machine.run().has_lost_memory


def test_a_damaged_mark_counts_as_a_loss(machine: Machine) -> None:
    machine.run().stopped()
    machine.disk.flip(f"/data/{RUN_FILE}", 20, 1)
    assert machine.run().has_lost_memory


def test_a_disk_without_room_leaves_no_mark_that_says_too_much(machine: Machine) -> None:
    machine.run().stopped()
    machine.disk.leave_free(0)
    machine.run()
    machine.disk.power_cut(0)
    assert machine.run().has_lost_memory
    machine.disk.capacity_bytes = UNLIMITED_BYTES
    machine.run()
    assert checkpoint.read(machine.disk, f"/data/{RUN_FILE}") == LOST
