"""`cordwood chaos run`: fault injection on a real cluster under load, and a verdict that names every broken promise."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import confluent_kafka
import typer

from cordwood.chaos.live import address_target, compose_target, local_target, run_summary, security
from cordwood.chaos.live.campaign import WENT_WRONG, Campaign
from cordwood.chaos.live.faults.fault import RoundOptions
from cordwood.chaos.live.figures import ValueLimit
from cordwood.chaos.live.file_systems import CannotMount
from cordwood.chaos.live.load_clients import QUICK, QUICK_READER, LoadOnCluster
from cordwood.chaos.live.network import NetworkUnavailable
from cordwood.chaos.live.options import workplace
from cordwood.chaos.live.rounds import Rounds
from cordwood.chaos.live.screen import RunProgress, screen
from cordwood.chaos.live.target import FAULTS, CannotHarm, FaultTarget, chosen
from cordwood.chaos.live.verdict import judge
from cordwood.chaos.recorded import RUN
from cordwood.chaos.report.axes import clock
from cordwood.chaos.report.page import page
from cordwood.chaos.report.place import writable
from cordwood.chaos.results import ResultFile, begun, ended
from cordwood.client.tls import WrongSetting
from cordwood.cluster.cli.exits import ExitCode, Failure
from cordwood.cluster.cli.option_groups import with_groups

LOCAL, COMPOSE, NONE, ALL = "local", "compose", "none", "all"
SEED_MAX = 1_000_000
ANOMALIES_SHOWN = 20
MINUTES, ROUNDS = 5.0, 10
TRANSACTIONAL = 4
"""Transactional clients: two in each protocol, and one of each two kills itself from time to time."""
MEMBERS = 3
"""Members of the group of the consumer protocol, and of the share group. Any other cluster may know neither."""
BROKERS_MIN = 3
"""The fewest brokers of which one may fail. One broker alone may be struck by faults that may strike all."""
STORED_BYTES_PER_MINUTE = 40 << 20
"""Bytes that a broker stores in a minute of the default load, with a margin; a round takes less than a minute."""
MB = 10**6


@dataclass(frozen=True, slots=True)
class OneFault:
    """Rounds of one fault, in place of faults over some minutes."""

    rounds: int
    kinds: Sequence[str]
    brokers: int
    options: RoundOptions


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run."""

    target: str
    project: str
    faults: Sequence[str]
    left_out: Mapping[str, str]
    """Why each other fault is not possible on this target, where all faults were requested."""
    minutes: float
    one: OneFault | None
    """In place of `minutes`."""
    load: LoadOnCluster
    report: Path
    as_json: bool
    is_kept: bool
    record: ResultFile | None = None

    @property
    def stored_bytes(self) -> int:
        """An upper bound of the bytes that a broker stores."""
        one = self.one
        if one is None:
            return int(self.minutes * STORED_BYTES_PER_MINUTE)
        return one.rounds * STORED_BYTES_PER_MINUTE + one.options.preload_mb * MB


Faults = Annotated[str | None, typer.Option(help="kill,pause,partition,power-cut,…; or all, or none.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, help=f"How long the clients run under faults.  [default: {MINUTES:g}]")
]
Fault = Annotated[str | None, typer.Option(help="Only this fault, in rounds, with limits of its own.")]
Seed = Annotated[int | None, typer.Option(help="The seed of the faults and their times; random by default.")]
PerSecond = Annotated[int, typer.Option(min=1, help="Records that each of four producers sends.")]


@dataclass(frozen=True, slots=True)
class GivenRounds:
    """The options of --fault."""

    rounds: Annotated[int | None, typer.Option(min=1, help=f"Rounds of --fault.  [default: {ROUNDS}]")] = None
    kinds: Annotated[str | None, typer.Option(help="Only these forms of --fault, in turn; all by default.")] = None
    hold: Annotated[float | None, typer.Option(min=0, help="Seconds that each --fault lasts.")] = None
    preload_mb: Annotated[
        int | None, typer.Option(min=0, help="Megabytes that each broker holds before the first round.")
    ] = None
    brokers: Annotated[
        int | None, typer.Option(min=1, help="Brokers of --fault: one, or at least three.  [default: 3]")
    ] = None
    limit: Annotated[
        list[str] | None, typer.Option(metavar="FIGURE=BOUND", help="Another bound for a limit of --fault.")
    ] = None


@dataclass(frozen=True, slots=True)
class GivenCluster:
    """The cluster to test, and how clients connect to it."""

    target: Annotated[str, typer.Option(metavar="local|compose|HOST:PORT", help="The cluster to test.")] = LOCAL
    project: Annotated[str, typer.Option(help="The compose project; the default is the one of this directory.")] = ""
    command_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar=security.FILE,
            help="TLS and SASL of the clients of compose or HOST:PORT, by librdkafka's keys.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a run writes."""

    report: Annotated[Path | None, typer.Option(metavar="FILE", help="The file of the report.")] = None
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep all data in this new directory.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one line of JSON at the end.")] = False
    recorded: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record the verdict as a result file, at a commit.")
    ] = None


@with_groups
def run(
    *,
    faults: Faults = None,
    minutes: Minutes = None,
    fault: Fault = None,
    rounds: GivenRounds,
    cluster: GivenCluster,
    seed: Seed = None,
    per_second: PerSecond = 100,
    outputs: Outputs,
) -> None:
    """Inject faults into a cluster while clients write and read, undo them, and check that no promise was broken.

    `local` starts three brokers; `compose` uses the running deployment of this directory; any other cluster is loaded
    and checked without faults. With --fault one fault is injected in rounds, and its limits are checked too. Exits with
    1 if a promise was broken or a limit was not kept.
    """
    number = random.SystemRandom().randrange(SEED_MAX) if seed is None else seed
    try:
        if fault is None:
            _refuse_options_of_rounds(rounds)
            wanted, left_out = _faults(faults or ALL, cluster.target)
            one = None
        else:
            wanted, left_out = _only(fault, cluster.target, faults, minutes), {}
            one = _one_fault(fault, rounds)
        _enter(cluster, wanted)
        load = LoadOnCluster(f"cordwood-chaos-{number}-{int(time.time())}", number, per_second=per_second)
        about = (
            {"fault": fault, "rounds": one.rounds} if one else {"minutes": minutes or MINUTES, "faults": faults or ALL}
        )
        asked = RunOptions(
            target=cluster.target,
            project=cluster.project or Path.cwd().name,
            faults=wanted,
            left_out=left_out,
            minutes=minutes or MINUTES,
            one=one,
            load=_load_of(one, load, cluster.target),
            report=writable(outputs.report or Path(f"cordwood-chaos-{number}.html")),
            as_json=outputs.as_json,
            is_kept=outputs.keep is not None,
            record=begun(outputs.recorded, RUN, {"target": cluster.target, "seed": number, **about}),
        )
        with workplace(outputs.keep) as place:
            is_whole = _carry_out(asked, place)
    except (CannotHarm, NetworkUnavailable, CannotMount) as reason:
        raise Failure(f"{reason}.", ExitCode.USAGE) from None
    except WENT_WRONG as failure:
        raise Failure(f"the brokers did not start: {failure}") from None
    if not is_whole:
        raise typer.Exit(ExitCode.FAILED)


def _enter(cluster: GivenCluster, faults: Sequence[str]) -> None:
    """Prepare local brokers, which are open, for the faults; let clients of others connect as the file says.

    Raises CannotHarm.
    """
    try:
        security.use(None if cluster.target == LOCAL else cluster.command_config)
    except (OSError, WrongSetting) as mistake:
        raise CannotHarm(f"--command-config: {mistake}") from None
    if cluster.target == LOCAL:
        local_target.enter(faults)


def _refuse_options_of_rounds(given: GivenRounds) -> None:
    """Raise CannotHarm where an option is given that only --fault has."""
    if useless := [f"--{name.replace('_', '-')}" for name, value in asdict(given).items() if value not in (None, [])]:
        raise CannotHarm(f"{', '.join(useless)} only with --fault NAME: {', '.join(FAULTS)}")


def _only(fault: str, target: str, faults: str | None, minutes: float | None) -> list[str]:
    """Return the fault of the rounds. Raises CannotHarm."""
    if fault not in FAULTS:
        raise CannotHarm(f"there is no fault {fault}, only {', '.join(FAULTS)}")
    if faults is not None or minutes is not None:
        raise CannotHarm("--fault runs --rounds: give neither --faults nor --minutes")
    if target != LOCAL:
        raise CannotHarm("--fault needs the brokers of --target local")
    return chosen([fault], local_target.reasons())


def _one_fault(fault: str, given: GivenRounds) -> OneFault:
    """Return the rounds of a fault, with the given options in place of its own. Raises CannotHarm."""
    kind = local_target.KINDS[fault]
    options, brokers = kind.rounds, given.brokers or BROKERS_MIN
    if brokers < BROKERS_MIN and not (brokers == 1 and kind.may_strike_all):
        raise CannotHarm(f"{fault} needs at least {BROKERS_MIN} brokers")
    if given.hold is not None:
        options = replace(options, hold_s=(given.hold, given.hold))
    if given.preload_mb is not None:
        options = replace(options, preload_mb=given.preload_mb)
    for bound in given.limit or ():
        options = replace(options, limits=_replaced(options.limits, *bound.partition("=")[::2]))
    kinds = [word.strip() for word in (given.kinds or "").split(",") if word.strip()]
    return OneFault(given.rounds or ROUNDS, kinds, brokers, options)


def _replaced(limits: Sequence[ValueLimit], figure: str, bound: str) -> tuple[ValueLimit, ...]:
    """Return the limits with another bound for a figure. Raises CannotHarm."""
    if figure not in {limit.figure for limit in limits}:
        known = dict.fromkeys(limit.figure for limit in limits)
        raise CannotHarm(f"{figure} is no limit of this fault, which has {', '.join(known) or 'none'}")
    try:
        return tuple(replace(limit, bound=float(bound)) if limit.figure == figure else limit for limit in limits)
    except ValueError:
        raise CannotHarm(f"--limit {figure}={bound}: the bound is no number") from None


def _load_of(one: OneFault | None, load: LoadOnCluster, target: str) -> LoadOnCluster:
    if one is None and target in (LOCAL, COMPOSE):
        load = replace(load, consumer_members=MEMBERS, share_members=_share_members())
    if one is None:
        return replace(load, transactional=TRANSACTIONAL)
    is_default = one.options.has_default_clients
    return replace(
        load,
        transactional=TRANSACTIONAL if one.options.has_transactions else 0,
        segment_bytes=one.options.segment_bytes,
        settings=() if is_default else QUICK,
        reader_settings=() if is_default else QUICK_READER,
    )


def _share_members() -> int:
    """Return the number of members of the share group; 0 if the installed client has no share consumer."""
    return MEMBERS if hasattr(confluent_kafka, "ShareConsumer") else 0


def _faults(words: str, target: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the faults to inject, and why each other fault is left out. Raises CannotHarm."""
    if target == LOCAL:
        reasons = local_target.reasons()
    else:
        reasons = compose_target.reasons() if target == COMPOSE else address_target.reasons()
    if words == ALL:
        usual = compose_target.DEFAULT_FAULTS if target == COMPOSE else None
        return chosen(usual, reasons), reasons
    wanted = [] if words == NONE else [word.strip() for word in words.split(",") if word.strip()]
    return chosen(wanted, reasons), {}


@contextmanager
def _opened(asked: RunOptions, place: Path) -> Iterator[FaultTarget]:
    """Yield the target. Brokers that it starts itself are not started yet."""
    if asked.target == LOCAL:
        one = asked.one
        rounds = (one.brokers, one.options.hold_s[1]) if one else ()
        with local_target.opened(place, asked.faults, asked.stored_bytes, *rounds, is_kept=asked.is_kept) as target:
            yield target
    elif asked.target == COMPOSE:
        with compose_target.opened(asked.project, asked.faults) as target:
            yield target
    else:
        yield address_target.found(asked.target)


def _carry_out(asked: RunOptions, place: Path) -> bool:
    """Run the campaign, write the report and print the verdict. Return False where a promise was broken."""
    progress, one = RunProgress(), asked.one
    for name, reason in asked.left_out.items():
        progress.tell(f"{name} is left out: {reason}")
    with _opened(asked, place) as target:
        campaign = Campaign(target, asked.load, place, progress.tell, one.options.limits if one else None)
        rounds = _rounds(one, campaign, place) if one else None
        if asked.target == LOCAL:
            target.cluster.start()
        try:
            with screen(campaign, progress, f"{one.rounds} rounds" if one else clock(asked.minutes * 60)):
                if one and rounds:
                    campaign.run_through(lambda: rounds.inject(one.rounds))
                else:
                    campaign.run(asked.minutes)
                lasted_s = campaign.now_s
                progress.tell("all faults are over: reading all records and comparing all replicas")
                verdict = judge(campaign)
        finally:
            campaign.clients.kill()
    if rounds:
        rounds.measure(verdict)
    verdict.anomalies.extend(campaign.figures.exceeded(campaign.limits))
    asked.report.write_text(page(run_summary.run_report(campaign, verdict, lasted_s, asked.left_out)), encoding="utf-8")
    for anomaly in verdict.anomalies[:ANOMALIES_SHOWN]:
        typer.echo(f"{anomaly.kind}: {anomaly.sentence}")
    for line in campaign.figures.lines(campaign.limits):
        typer.echo(line)
    typer.echo(run_summary.sentence(campaign, verdict, lasted_s))
    typer.echo(f"report: {asked.report}", err=True)
    summary = run_summary.summary(campaign, verdict, lasted_s)
    ended(asked.record, summary)
    if asked.as_json:
        typer.echo(json.dumps(summary))
    return not verdict.anomalies


def _rounds(one: OneFault, campaign: Campaign, place: Path) -> Rounds:
    """Return the rounds in the chosen forms. Raises CannotHarm."""
    [fault] = campaign.target.faults.values()
    forms = fault.forms()
    if unknown := sorted(set(one.kinds) - forms.keys()):
        raise CannotHarm(f"there is no kind {', '.join(unknown)} of {fault.name}, only {', '.join(forms)}")
    return Rounds(campaign, one.options, {name: forms[name] for name in one.kinds or forms}, place)
