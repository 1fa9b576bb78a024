"""Source code rules: no direct access to time, randomness, files or threads; short functions; one class for a name."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "replication", "cluster", "chaos", "bench", "spark", "client", "columnar", "archive")
PROGRAMS = (*PACKAGES, "examples", "docs")

FUNCTION_LINES_MAX = 60

BANNED = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|sleep)(_ns)?"
    r"|datetime\.(datetime\.(now|utcnow|today)|date\.today)"
    r"|random\.(?!Random$).*|secrets\..*|uuid\.uuid[14]|os\.(urandom|getrandom)"
    r"|open|io\.open|os\.open|pathlib\..*"
    r"|threading\.(Thread|Timer)|_thread\..*|concurrent\.futures\.\w+PoolExecutor|asyncio\.to_thread|multiprocessing\..*"
)
"""Time, randomness, files and threads: `cluster/broker/broker.py` passes them in, and a simulator replaces them."""

MAY_REACH_OUT = {
    "cluster/broker/process.py": "a broker as a process of the real world",
    "cluster/broker/jwks_reader.py": "reads the keys of an identity provider, which the configuration names",
    "archive/blocking.py": "serves programs without an event loop of ours, in their own processes",
    "archive/tables.py": "runs in programs of users, and compares the expiry of a cut with their clock",
    "archive/obstore_store.py": "the real form of the seam to the object store",
    "storage/real_disk.py": "the real form of the one seam to the disk",
    "cluster/security/credential_files.py": "reads certificates and keys, which other programs write",
    "cluster/cli/": "client commands run in a process of their own",
    "chaos/sim/command.py": "the command that runs the simulator for so many real minutes",
    "chaos/worker_pool.py": "runs work in processes of their own, which watch their parent in a thread",
    "chaos/sim/cut_jobs.py": "gives a job a stack of its own; its thread runs only while the simulation waits for it",
    "chaos/commit.py": "asks git which state of the source a run tried",
    "chaos/results.py": "writes down what a run found, and when",
    "chaos/report/place.py": "looks whether a report can be written where somebody wants it",
    "chaos/live/": "drives real processes",
    "chaos/mutants/": "runs copies of the source in processes of their own",
    "client/blocking.py": "renews its session in time",
    "client/bearer.py": "reads a token of a file, and asks an identity provider for the next one in time",
    "client/token_endpoint.py": "asks the identity provider that a user names",
    "client/properties.py": "reads the file that a user names",
    "client/sasl.py": "needs a nonce that cannot be foreseen",
    "client/tls.py": "reads the certificates that a user names",
    "spark/stream_source.py": "lives on Spark's driver, and knows how long ago the last micro-batch was",
    "spark/session.py": "prepares the machine that it runs on",
    "spark/task_metrics.py": "writes the file that a user names",
    "spark/client/": "waits for brokers, in the processes that Spark runs it in",
    "spark/exactly_once/": "waits for brokers, and leases transactional ids on the machine of a task",
    "bench/": "measures real processes",
    "examples/": "programs of users",
}

QUESTIONS = ("What ", "Who ", "Where ", "How ")
"""First words of a docstring that names no thing."""
LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|tmp|Users|opt)/\w")


def python_files(*folders: str) -> list[str]:
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )


def text_files() -> list[str]:
    names = [path.relative_to(ROOT).as_posix() for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    return sorted(names + docs + python_files(*PROGRAMS, "tests"))


def parsed(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(), name)


def origins(module: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name: {"monotonic": "time.monotonic"}."""
    known: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def dotted(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return the full name of an expression like `time.monotonic`; None if it was not imported."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id if node.id == "open" else None)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, known)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def ways_out(module: ast.Module) -> Iterator[str]:
    known = origins(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _uses_the_loops_own_threads(node):
            yield f"line {node.lineno}: run_in_executor without an executor that was given"
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = dotted(node, known)
            if name and BANNED.fullmatch(name):
                yield f"line {node.lineno}: {name}"


def _uses_the_loops_own_threads(call: ast.Call) -> bool:
    is_executor = isinstance(call.func, ast.Attribute) and call.func.attr == "run_in_executor"
    return is_executor and bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is None


def silent_catches(module: ast.Module) -> Iterator[str]:
    """Yield each `except Exception` that neither logs nor raises nor passes the error on."""
    for node in ast.walk(module):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type
        if caught is not None and not (isinstance(caught, ast.Name) and caught.id in ("Exception", "BaseException")):
            continue
        inside = [below for statement in node.body for below in ast.walk(statement)]
        logs = any(
            isinstance(below, ast.Call) and isinstance(below.func, ast.Attribute) and below.func.attr in LOGS
            for below in inside
        )
        hands_on = any(isinstance(below, ast.Name) and below.id == node.name for below in inside)
        if not (logs or hands_on or any(isinstance(below, ast.Raise) for below in inside)):
            yield f"line {node.lineno}"


def public_classes(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def broken_by(rule: Callable[[str], Iterable[str]], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the rule's findings by file, without the files that keep the rule."""
    found = {name: list(rule(name)) for name in names}
    return {name: faults for name, faults in found.items() if faults}


def test_time_chance_files_and_threads_come_in_from_outside() -> None:
    names = [name for name in python_files(*PACKAGES) if not name.startswith(tuple(MAY_REACH_OUT))]
    assert broken_by(lambda name: ways_out(parsed(name)), names) == {}


def test_functions_are_short() -> None:
    def too_long(name: str) -> Iterator[str]:
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The parameters of a command are its options with their help, not statements.
                count = (node.end_lineno or 0) - node.body[0].lineno + 2
                if count > FUNCTION_LINES_MAX:
                    yield f"{node.name} has {count} lines"

    assert broken_by(too_long, python_files(*PROGRAMS, "tests")) == {}


def test_the_first_line_says_the_one_idea() -> None:
    def nameless(name: str) -> Iterator[str]:
        module = parsed(name)
        if module.body and not ast.get_docstring(module):
            yield "has no docstring"
        if module.body and module.body[0].lineno != 1:
            yield "does not begin with its docstring"
        if (ast.get_docstring(module) or "").startswith(QUESTIONS):
            yield "does not name the thing"

    assert broken_by(nameless, python_files(*PROGRAMS, "tests")) == {}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for name in python_files(*PROGRAMS):
        for class_name in public_classes(parsed(name)):
            places.setdefault(class_name, []).append(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_nothing_is_swallowed_in_silence() -> None:
    assert broken_by(lambda name: silent_catches(parsed(name)), python_files(*PROGRAMS)) == {}


def test_no_path_of_one_machine_is_written_down() -> None:
    def machine_paths(name: str) -> Iterator[str]:
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield f"line {number}: {line}"

    assert broken_by(machine_paths, [name for name in text_files() if name != "tests/test_tidy.py"]) == {}


def test_a_planted_way_out_is_found() -> None:
    planted = "from time import monotonic as now\nimport random, asyncio\nnow()\nrandom.choice([])\nopen('x')\n"
    assert sorted(ways_out(ast.parse(planted))) == ["line 3: time.monotonic", "line 4: random.choice", "line 5: open"]
    assert list(ways_out(ast.parse("import random\nrandom.Random(7).choice([1])\ndisk.open('x')"))) == []
    assert list(ways_out(ast.parse("loop.run_in_executor(None, work)")))
    assert list(ways_out(ast.parse("loop.run_in_executor(given, work)"))) == []


def test_a_planted_class_is_found() -> None:
    assert list(public_classes(ast.parse("class Log: ...\nclass _Part: ...\n"))) == ["Log"]


def test_a_planted_silent_catch_is_found() -> None:
    quiet = "try:\n    go()\nexcept Exception:\n    pass\n"
    assert list(silent_catches(ast.parse(quiet))) == ["line 3"]
    assert list(silent_catches(ast.parse(quiet.replace("pass", "log.exception('it ended')")))) == []
