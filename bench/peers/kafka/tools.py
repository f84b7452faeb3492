"""Kafka's command-line tools, run by the class that each script of a distribution names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bench.peers.maven import compiled

from .jars import HERE, JARS, class_path

# bin/kafka-run-class.sh's options for tools: heap and JVM performance.
TOOL_OPTIONS = (
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# The script of a distribution -> its class.
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def tool_command(
    tool: str, arguments: Sequence[str] = (), options: Sequence[str] = TOOL_OPTIONS
) -> list[str]:
    """Returns the command line of a tool: a script's name, a class's full name, or a source of ours."""
    path = class_path()
    if tool.endswith(".java"):
        path = f"{own_classes(tool)}:{path}"
        tool = tool.removesuffix(".java")
    return [
        java(),
        *options,
        f"-Dlog4j2.configurationFile={HERE / 'log4j2-tools.properties'}",
        "-cp",
        path,
        TOOLS.get(tool, tool),
        *arguments,
    ]


def own_classes(source: str) -> Path:
    """The folder with what `javac` makes of a source beside this file."""
    return compiled(JARS, [HERE / source])


def run_tool(
    tool: str, *arguments: str, input: str | None = None, timeout: float = 120, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end, capturing standard output and error as text.

    Raises RuntimeError with both if `check` is set and the tool fails, subprocess.TimeoutExpired after
    `timeout` seconds.
    """
    done = subprocess.run(
        tool_command(tool, arguments),
        input=input,
        capture_output=True,
        check=False,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{tool} failed ({done.returncode}):\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done


def start_tool(
    tool: str, *arguments: str, stdout: IO[Any] | int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts a tool in the background; the caller stops it."""
    return subprocess.Popen(
        tool_command(tool, arguments), stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, text=True
    )
