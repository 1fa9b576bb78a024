"""Child process of a hunt: runs one simulated scenario with one seed after the other, until a seed fails.

The process may run a mutant's code. The outcome is one line of JSON. A seed that takes far more processor time than any
other fails too.
"""

import json
import logging
import math
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass

import structlog

import cordwood
from cordwood.chaos.mutants.mutant import Scenario
from cordwood.chaos.sim.group_scenario import run_group_scenario
from cordwood.chaos.sim.log_scenario import run_log_scenario
from cordwood.chaos.sim.plan import (
    Plan,
    consumer_group_plan_of,
    plan_of,
    share_group_plan_of,
    transactional_plan_of,
)
from cordwood.chaos.sim.quorum_scenario import run_quorum_scenario
from cordwood.chaos.sim.replica_scenario import run_replica_scenario
from cordwood.chaos.sim.run import run_plan
from cordwood.chaos.sim.share_scenario import run_share_scenario
from cordwood.chaos.sim.strict import ScenarioFailed
from cordwood.chaos.sim.turns_scenario import run_turns_scenario

SEED_CPU_S = 60.0
"""Processor seconds that a seed may take. A seed takes less than one second on the unchanged source."""
WHAT_CHARS_MAX = 300
HOUR_S = 3600.0
BROKERS_TROUBLE_S, TRANSACTIONS_TROUBLE_S, GROUPS_TROUBLE_S = 30.0, 10.0, 15.0


def brokers_scenario(seed: int) -> float:
    """Run the `brokers` scenario with one seed. Return the simulated seconds. Raises ScenarioFailed."""
    return _sound(plan_of(seed, BROKERS_TROUBLE_S))


def transactions_scenario(seed: int) -> float:
    """Run the `transactions` scenario with one seed. Return the simulated seconds. Raises ScenarioFailed."""
    return _sound(transactional_plan_of(seed, TRANSACTIONS_TROUBLE_S))


def consumer_groups_scenario(seed: int) -> float:
    """Run the `consumer-groups` scenario with one seed. Return the simulated seconds. Raises ScenarioFailed."""
    return _sound(consumer_group_plan_of(seed, GROUPS_TROUBLE_S))


def share_groups_scenario(seed: int) -> float:
    """Run the `share-groups` scenario with one seed. Return the simulated seconds. Raises ScenarioFailed."""
    return _sound(share_group_plan_of(seed, GROUPS_TROUBLE_S))


def _sound(plan: Plan) -> float:
    run = run_plan(plan, plan.faults)
    if not run.is_sound:
        first = run.findings[0]
        raise ScenarioFailed(run.simulated_s) from AssertionError(f"{first.kind}: {first.sentence}")
    return run.simulated_s


SCENARIOS: dict[Scenario, Callable[[int], float]] = {
    Scenario.LOGS: run_log_scenario,
    Scenario.REPLICAS: run_replica_scenario,
    Scenario.TURNS: run_turns_scenario,
    Scenario.QUORUM: run_quorum_scenario,
    Scenario.GROUPS: run_group_scenario,
    Scenario.TRANSACTIONS: transactions_scenario,
    Scenario.SHARES: run_share_scenario,
    Scenario.CONSUMER_GROUPS: consumer_groups_scenario,
    Scenario.SHARE_GROUPS: share_groups_scenario,
    Scenario.BROKERS: brokers_scenario,
}


@dataclass(frozen=True, slots=True)
class Chase:
    """The outcome. `seed` is the one that failed, 0 if none did; `package` is the path of the imported package."""

    package: str
    seeds: int
    simulated_s: float
    seed: int = 0
    what: str = ""
    is_cut_short: bool = False
    """Whether the real time limit ended the chase before the other limits."""

    @property
    def is_caught(self) -> bool:
        return self.seed > 0


@dataclass(frozen=True, slots=True)
class ChaseLimits:
    """Limits of a chase that catches nothing: seeds, simulated hours, and real seconds."""

    seeds_max: int = 1_000_000
    hours: float = math.inf
    real_s: float = math.inf
    first_seed: int = 1


class Stuck(KeyboardInterrupt):
    """A seed took more than SEED_CPU_S. A KeyboardInterrupt, so that no error handler of a loop swallows it."""


def chase(scenario: Callable[[int], float], limits: ChaseLimits) -> Chase:
    """Run a scenario with one seed after the other until a seed fails, or a limit is reached."""
    package, first = cordwood.__path__[0], limits.first_seed
    simulated_s, seed, end = 0.0, first - 1, time.monotonic() + limits.real_s
    while simulated_s < limits.hours * HOUR_S and seed - first + 1 < limits.seeds_max:
        if time.monotonic() >= end:
            return Chase(package, seed - first + 1, simulated_s, is_cut_short=True)
        seed += 1
        signal.setitimer(signal.ITIMER_PROF, SEED_CPU_S)
        try:
            simulated_s += scenario(seed)
        except (Exception, Stuck) as error:
            simulated_s += error.at_s if isinstance(error, ScenarioFailed) else 0.0
            return Chase(package, seed - first + 1, simulated_s, seed, _sentence(error))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return Chase(package, seed - first + 1, simulated_s)


def _sentence(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, ScenarioFailed) and error.__cause__ is not None else error
    frames = traceback.extract_tb(cause.__traceback__)
    place = f" in {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(cause).__name__}{place}: {cause}"[:WHAT_CHARS_MAX]


def _stop(*_: object) -> None:
    raise Stuck(f"{SEED_CPU_S:g} seconds of the processor, and no end")


def main() -> None:
    """Run the scenario that is the first argument, with the limits in the second, as JSON."""
    scenario, limits = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    signal.signal(signal.SIGPROF, _stop)
    outcome = chase(SCENARIOS[Scenario(scenario)], ChaseLimits(**json.loads(limits)))
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
