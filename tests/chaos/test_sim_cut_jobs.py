"""Jobs in simulated threads: the event loop runs between two of their disk calls, and a dead process's jobs end."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

from cordwood.chaos.sim import loop as simulated
from cordwood.chaos.sim.actions import ACTIONS
from cordwood.chaos.sim.cut_jobs import KINDS, OTHER, CutJobs
from cordwood.chaos.sim.disk import SimulatedDisk
from cordwood.chaos.sim.environment import SimulatedThreads
from cordwood.chaos.sim.loop import Process, SimulatedLoop
from cordwood.chaos.sim.plan import plan_of
from cordwood.chaos.sim.run import run_plan

CALLS = 10


class Machine:
    """A disk whose thread jobs are all interrupted, and what the disk has after each event-loop step."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.disk, self.counted = SimulatedDisk(random.Random(1)), Counter[str]()
        self.jobs = CutJobs(loop, random.Random(1), 1.0, self.counted)
        self.disk.on_call = self.jobs.at_disk_call
        self.run_blocking = SimulatedThreads(loop, lambda: 0.001, self.jobs).run_blocking
        loop.at_end.append(self.jobs.abandon)

    def make_files(self) -> int:
        """Make files, as a job. Return their number."""
        for number in range(CALLS):
            self.disk.open(f"/{number}", create=True)
        return len(self.disk.files())

    def fail(self) -> None:
        self.disk.open("/0", create=True)
        raise OSError("as expected")


def test_the_loop_runs_between_two_disk_calls_of_a_job() -> None:
    async def scenario() -> set[int]:
        machine = Machine()
        job = asyncio.ensure_future(machine.run_blocking(machine.make_files))
        seen = set()
        while not job.done():
            seen.add(len(machine.disk.files()))
            await asyncio.sleep(0.0001)
        assert job.result() == CALLS
        assert machine.counted[OTHER] > 0
        return seen

    assert len(simulated.run(scenario())) > 2


def test_the_error_of_a_job_reaches_its_caller() -> None:
    async def scenario() -> str:
        machine = Machine()
        try:
            await machine.run_blocking(machine.fail)
        except OSError as error:
            return str(error)
        return ""

    assert simulated.run(scenario()) == "as expected"


def test_a_job_of_a_dead_process_changes_nothing_more() -> None:
    async def scenario() -> None:
        machine, process = Machine(), Process("host")
        loop = asyncio.get_running_loop()
        job = loop.create_task(machine.run_blocking(machine.make_files), context=process.context())
        while not machine.disk.files():
            await asyncio.sleep(0.0001)
        process.is_alive = False
        machine.disk.kill()
        machine.jobs.abandon()
        made = machine.disk.files()
        await asyncio.sleep(1)
        assert len(made) < CALLS
        assert machine.disk.files() == made
        assert not job.done()

    simulated.run(scenario())


def test_every_kind_of_job_is_counted_under_a_name_that_is_known() -> None:
    assert {*KINDS.values(), OTHER} <= set(ACTIONS)


def test_a_cluster_whose_jobs_are_all_interrupted_breaks_no_promise() -> None:
    """In `test_sim_actions` files are removed too."""
    plan = replace(plan_of(5, 10.0), cut_share=1.0)
    run = run_plan(plan, plan.faults)
    assert run.findings == ()
    assert {*KINDS.values(), OTHER} - {"maintenance-cut"} <= set(run.actions)
