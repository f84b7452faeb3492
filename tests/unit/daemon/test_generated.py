"""The committed messages match the proto file, and messages convert to plain values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from treecast.middleware.api.messages import as_dict
from treecast.middleware.api.v1 import daemon_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]


def test_generating_again_gives_the_same_bytes(
    tmp_path: Path, require: Callable[[object, str], None]
) -> None:
    require(find_spec("grpc_tools"), "grpcio-tools is not installed")
    subprocess.run([sys.executable, ROOT / "proto/generate", "--to", tmp_path], check=True, timeout=60)
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    protos = [path.stem for path in (ROOT / "proto/treecast/v1").glob("*.proto")]
    assert "daemon" in protos
    assert [path.name for path in made] == sorted(f"{p}_pb2{end}" for p in protos for end in (".py", ".pyi"))
    for path in made:
        assert path.read_bytes() == (ROOT / "src" / path.relative_to(tmp_path)).read_bytes()


def test_the_messages_are_of_the_package_that_other_languages_use() -> None:
    assert pb.DESCRIPTOR.package == "treecast.v1"
    assert pb.DESCRIPTOR.services_by_name["Daemon"].full_name == "treecast.v1.Daemon"


def test_messages_as_plain_values() -> None:
    message = pb.DescribeTopicResponse(
        topic=pb.Topic(name="t", overrides={"retention.ms": "5"}, records=2**40),
        partitions=[pb.Partition(index=1, end_offset=2**62)],
    )
    assert as_dict(message) == {
        "topic": {
            "name": "t",
            "topic_id": "",
            "internal": False,
            "partitions": 0,
            "overrides": {"retention.ms": "5"},
            "records": 2**40,
            "bytes": 0,
        },
        "partitions": [
            {
                "index": 1,
                "leader_epoch": 0,
                "start_offset": 0,
                "end_offset": 2**62,
                "stable_offset": 0,
                "copies": 0,
                "leader": "",
                "bytes": 0,
            }
        ],
        "config": [],
    }


@pytest.mark.parametrize("fields", [{}, {"traffic": pb.Traffic(requests=3)}])
def test_a_message_that_is_not_there_is_none(fields: dict[str, pb.Traffic]) -> None:
    assert (as_dict(pb.Face(name="kafka", **fields))["traffic"] is None) is (not fields)
