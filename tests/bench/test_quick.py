"""The harness from end to end, short: it runs and reports. The tests check no speed."""

import json
import subprocess
import sys
import time

import pytest
from bench.java import jars
from bench.peers.kafka import missing_tools
from bench.peers.rabbitmq import Federation, missing


def run(tmp_path, *arguments, comparison=("kafka", "--records", "20000")):
    command = [sys.executable, "-m", "bench", *comparison, "--quick"]
    command += ["--out", str(tmp_path), "--data", str(tmp_path), *arguments]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=300)


def test_treecast_and_the_floor_are_compared(tmp_path):
    done = run(tmp_path, "--peers", "treecast,floor", "--only", "raw", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "bench-kafka.json").read_text())
    assert document["failures"] == []
    assert set(document["peers"]) == {"Treecast", "floor"}
    found = {(row["workload"], row["metric"]): row for row in document["summary"]}
    throughput = found["raw produce, 100 B, 16 KiB batches, 1 conn.", "throughput"]
    assert all(peer["median"] > 0 for peer in throughput["peers"].values())
    assert throughput["share_of_floor"] > 0
    assert found["server", "resident, idle"]["peers"]["Treecast"]["median"] > 1
    assert list(tmp_path.glob("bench-*")) != []
    assert not list(tmp_path.glob("bench-*/treecast-*")), "data directories stay behind"


@pytest.mark.slow
def test_kafka_is_started_loaded_and_stopped(tmp_path, require):
    require(not missing_tools(), "needs java and mvn")
    done = run(tmp_path, "--peers", "kafka", "--only", "raw produce", "--only", "java")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "bench-kafka.json").read_text())
    measured = {row["workload"] for row in document["summary"]}
    assert len(measured) == 3
    assert document["peers"]["Apache Kafka"]["version"] in done.stdout


def test_a_peer_that_is_not_known_is_refused(tmp_path):
    done = run(tmp_path, "--peers", "pulsar")
    assert done.returncode == 2
    assert "no such peer: pulsar" in done.stdout


def fabric(tmp_path, *arguments):
    return run(tmp_path, *arguments, comparison=("fabric", "--seconds", "1"))


def measured(tmp_path):
    document = json.loads((tmp_path / "bench-fabric.json").read_text())
    assert document["failures"] == []
    return document, {(row["workload"], row["metric"]): row["peers"] for row in document["summary"]}


def test_records_go_through_one_daemon(tmp_path):
    done = fabric(tmp_path, "--peers", "one")
    assert done.returncode == 0, done.stdout + done.stderr
    document, found = measured(tmp_path)
    assert document["peers"]["one daemon"]["durability"] == "fsync = never"
    assert found["through the chain, 100 B", "throughput"]["one daemon"]["median"] > 0
    assert found["latency at 1,000/s, 100 B", "end-to-end p50"]["one daemon"]["median"] > 0
    assert not list(tmp_path.glob("bench-*/treecast-*")), "data directories stay behind"


def test_a_run_that_is_told_to_stop_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "bench", "fabric", "--peers", "one", "--rounds", "50", "--quick"]
    command += ["--out", str(tmp_path / "out"), "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as harness:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("bench-*/treecast-*/data")) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(tmp_path.glob("bench-*/treecast-*/data")), "the daemon never started"
        harness.terminate()
        output, _ = harness.communicate(timeout=60)
    assert harness.returncode == 128 + 15, output
    assert not list(tmp_path.glob("bench-*")), "folders stay behind"


def test_records_go_from_one_daemon_to_another(tmp_path):
    done = fabric(tmp_path, "--peers", "two,two-fsync")
    assert done.returncode == 0, done.stdout + done.stderr
    document, found = measured(tmp_path)
    assert {peer["durability"] for peer in document["peers"].values()} == {"fsync = never", "fsync = batch"}
    for metric in ("throughput", "server CPU"):
        assert found["through the chain, 100 B", metric]["two daemons"]["median"] > 0
    assert found["latency at 1,000/s, 100 B", "end-to-end p50"]["two daemons, fsync"]["median"] > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_records_go_through_mirror_maker(tmp_path, require):
    require(not missing_tools(), "needs java and mvn")
    done = fabric(tmp_path, "--peers", "mirrormaker2", "--only", "through")
    assert done.returncode == 0, done.stdout + done.stderr
    _, found = measured(tmp_path)
    assert found["through the chain, 100 B", "throughput"]["Kafka + MirrorMaker 2"]["median"] > 0


@pytest.mark.nightly
def test_records_go_through_a_federated_exchange(tmp_path):
    if reason := Federation().missing():
        pytest.skip(reason)  # in CI as well: one comparison does not justify installing a broker there
    done = fabric(tmp_path, "--peers", "rabbitmq-federation")
    assert done.returncode == 0, done.stdout + done.stderr
    _, found = measured(tmp_path)
    assert found["through the chain, 100 B", "throughput"]["RabbitMQ federation"]["median"] > 0


def short_and_long(*only):
    """Returns options: only these workloads, and in `make nightly` all of them."""
    words = [word for name in only for word in ("--only", name)]
    return [pytest.param(words, id="some"), pytest.param([], id="all", marks=pytest.mark.nightly)]


MQTT_LOADS = ("QoS 0, 100 B, 1 to 10", "QoS 1, 100 B, 1 to 1")
CONFIRMS = "confirms and acks, 1 KiB, 4 queues"
LATENCY = "latency at 1,000/s, QoS 0, 100 B"


@pytest.mark.parametrize("only", short_and_long(*MQTT_LOADS, LATENCY))
def test_the_mqtt_face_and_mosquitto_are_compared(tmp_path, require_tool, only):
    require_tool("mosquitto")
    command = [sys.executable, "-m", "bench", "mqtt", "--quick", "--json", *only]
    command += ["--out", str(tmp_path), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "bench-mqtt.json").read_text())
    assert document["failures"] == []
    found = {(row["workload"], row["metric"]): row["peers"] for row in document["summary"]}
    for load in MQTT_LOADS:
        assert set(found[load, "delivered"]) == {"Treecast", "Mosquitto", "floor"}
    assert found[LATENCY, "end-to-end p99"]["Treecast"]["median"] > 0


@pytest.mark.parametrize("only", short_and_long(CONFIRMS))
def test_the_amqp_face_and_a_bare_loop_are_compared(tmp_path, only):
    done = run(tmp_path, "--peers", "treecast,floor", *only, comparison=("amqp",))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "bench-amqp.json").read_text())
    assert document["failures"] == []
    found = {(row["workload"], row["metric"]): row["peers"] for row in document["summary"]}
    delivered = found[CONFIRMS, "delivered"]
    assert delivered["Treecast"]["median"] > 0
    assert delivered["floor"]["median"] > 0
    assert not list(tmp_path.glob("bench-*/treecast-*")), "data directories stay behind"


@pytest.mark.slow
def test_rabbitmq_is_started_loaded_and_stopped(tmp_path, require):
    require(not missing(), missing())
    done = run(tmp_path, "--peers", "rabbitmq", "--only", "queued messages", comparison=("amqp",))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "bench-amqp.json").read_text())
    assert document["peers"]["RabbitMQ"]["version"] in done.stdout
    assert any("queued messages" in row["workload"] for row in document["summary"])


def test_amqp_messages_go_from_one_daemon_to_another(tmp_path):
    done = run(tmp_path, "--peers", "two", "--only", "100 B", comparison=("amqp-hosts",))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "bench-amqp-hosts.json").read_text())
    assert document["failures"] == []
    assert {row["workload"] for row in document["summary"]} > {"auto-ack, 100 B, one queue"}


def joined(tmp_path, comparison, *arguments):
    """Returns what a comparison of agents has measured: of each peer, by workload and metric."""
    done = run(tmp_path, *arguments, comparison=(comparison,))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / f"bench-{comparison}.json").read_text())
    assert document["failures"] == []
    assert not list(tmp_path.glob("bench-*/*/")), "data directories stay behind"
    return {(row["workload"], row["metric"]): row["peers"] for row in document["summary"]}


@pytest.mark.parametrize("only", short_and_long("QoS 1, 100 B"))
def test_agents_and_mosquittos_bridge_are_compared(tmp_path, require_tool, only):
    require_tool("mosquitto")
    found = joined(tmp_path, "agents-mqtt", *only)
    for metric in ("delivered", "CPU of the bridge"):
        measured = found["QoS 1, 100 B, 1 to 1", metric]
        assert measured["Treecast's agents"]["median"] > 0
        assert measured["Mosquitto's bridge"]["median"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peers", "names"),
    [
        pytest.param("bridge", {"Treecast's bridge"}, id="ours"),
        pytest.param(
            "bridge,mirrormaker2",
            {"Treecast's bridge", "MirrorMaker 2"},
            id="both",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_records_go_through_the_kafka_bridge(tmp_path, require, peers, names):
    require(not missing_tools(), "needs java and mvn")
    found = joined(tmp_path, "agents-kafka", "--peers", peers)
    for load, metric in (
        ("through the chain, 100 B", "throughput"),
        ("latency at 1,000/s, 100 B", "end-to-end p99"),
    ):
        assert set(found[load, metric]) == names
        assert all(peer["median"] > 0 for peer in found[load, "CPU of the bridge"].values())


@pytest.mark.slow
@pytest.mark.parametrize("face", ["kafka", "amqp", "mqtt"])
def test_stock_clients_load_each_face(tmp_path, require, face):
    require(not jars.missing_tools(face), "needs java, javac and mvn")
    done = run(tmp_path, "--faces", face, "--sides", "ours", "--seconds", "1", comparison=("stock",))
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / f"bench-stock-{face}.json").read_text())
    assert document["failures"] == []
    found = {(row["workload"], row["metric"]): row["peers"]["Treecast"] for row in document["summary"]}
    loads = {workload for workload, metric in found if metric == "received by each"}
    assert len(loads) == (3 if face == "kafka" else 1)
    for load in loads:
        assert found[load, "server CPU"]["median"] > 0
        assert found[load, "end-to-end p99"]["median"] > 0
    assert "load average" in done.stdout
