"""The Spark home whose Python workers start sooner."""

from __future__ import annotations

import pickle
import socket
import sys
from pathlib import Path

import pytest

from treecast.spark_connectors import workers


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark installation as pip leaves it."""
    folder = tmp_path / "site-packages" / "pyspark"
    for name in ("bin", "jars", "python/lib", "sql", "__pycache__"):
        (folder / name).mkdir(parents=True)
    for name in ("__init__.py", "sql/__init__.py", "python/lib/pyspark.zip", "bin/spark-submit"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is restored, whatever is set meanwhile
        monkeypatch.delenv(name)
    return folder


def test_it_has_all_but_the_zip_and_the_packages(installed: Path, tmp_path: Path) -> None:
    home = workers.light_home(tmp_path / "cache")
    assert {entry.name for entry in home.iterdir()} == {"bin", "jars"}
    assert (home / "bin" / "spark-submit").resolve() == installed / "bin" / "spark-submit"
    assert workers.light_home(tmp_path / "cache") == home, "a second time it is there"


def test_what_the_environment_says_is_left_alone(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = workers.os.environ
    workers.quick_start()
    assert Path(environment["SPARK_HOME"]).parent == tmp_path / "cache" / "treecast"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.11")
    workers.quick_start()
    assert (environment["SPARK_HOME"], environment["PYSPARK_PYTHON"]) == ("/opt/spark", "python3.11")


def test_the_installed_pyspark_is_what_it_takes(tmp_path: Path) -> None:
    """The installed PySpark still has the expected layout."""
    pyspark = pytest.importorskip("pyspark")
    assert (Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip").is_file()
    home = workers.light_home(tmp_path)
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()


def test_what_a_worker_has_loaded_is_left_out_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens after two tasks, not after each, as garbage of that moment would stay forever."""
    called: list[str] = []
    monkeypatch.setattr(workers, "_settling", 2)
    for name in ("collect", "freeze"):
        monkeypatch.setattr(workers.gc, name, lambda name=name: called.append(name))
    for _ in range(5):
        workers.settle()
    assert called == ["collect", "freeze"] * 2


def test_a_worker_that_unpickles_its_task_acknowledges_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Spark's next write waits for 40 ms if the worker has just replied to a task."""
    if workers._QUICK is None:
        pytest.skip("TCP_QUICKACK is Linux's")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as spark,
    ):
        worker, _ = server.accept()
        other, apart = socket.socketpair()
        with worker, other, apart:
            monkeypatch.setattr(workers, "_spark", None)
            worker.setsockopt(socket.IPPROTO_TCP, workers._QUICK, 0)  # as the kernel does after a reply
            sent = workers.Sent()
            sent.__dict__["options"] = 7
            assert pickle.loads(pickle.dumps(sent)).__dict__ == {"options": 7}
            assert worker.getsockopt(socket.IPPROTO_TCP, workers._QUICK) == 1
            worker.setsockopt(socket.IPPROTO_TCP, workers._QUICK, 0)
            pickle.loads(pickle.dumps(workers.Sent()))
            assert worker.getsockopt(socket.IPPROTO_TCP, workers._QUICK) == 1, "an empty one as well"
            assert other.fileno() not in (workers._spark or ()), "a non-TCP socket needs no option"
            assert server.fileno() not in (workers._spark or ())
        pickle.loads(pickle.dumps(sent))  # a closed object needs no acknowledgement
        assert spark.recv(1) == b""


def test_what_spark_sends_to_workers_is_acknowledged_there() -> None:
    pytest.importorskip("pyspark")
    from treecast.spark_connectors.sink import writer
    from treecast.spark_connectors.source import reader

    for kind in (reader._Reading, writer.TreecastStreamWriter, writer.TreecastWriter):
        assert kind.__setstate__ is workers.Sent.__setstate__
