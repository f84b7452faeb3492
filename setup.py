"""Builds the compiled form of the hot modules.

The list below is the whole of it: each is plain typed Python that also runs as it is. Without a C
compiler, without mypyc, or with TREECAST_PURE=1, the package installs without them and only runs slower.
"""

import os
import sys
from collections.abc import Sequence

from setuptools import Extension, setup

HOT_MODULES: list[str] = [
    "middleware/model/buffers.py",
    "middleware/wire/varint.py",
    "middleware/wire/zstd_frame.py",
    "middleware/wire/record_walk.py",
    "middleware/wire/batch_header.py",
    "middleware/wire/batch_check.py",
    "middleware/wire/record_values.py",
    "middleware/wire/kafka_primitives.py",
    "middleware/wire/segment.py",
    "middleware/wire/segment_assembly.py",
    "middleware/routing/bits.py",
    "middleware/routing/errors.py",
    "middleware/routing/network.py",
    "middleware/routing/rooted.py",
    "middleware/routing/steiner/common.py",
    "middleware/routing/steiner/mehlhorn.py",
    "middleware/routing/virtual/growth.py",
    "middleware/routing/virtual/layout.py",
    "middleware/routing/virtual/encoder.py",
    "middleware/storage/aborted.py",
    "middleware/storage/epochs.py",
    "middleware/storage/control.py",
    "middleware/storage/producers.py",
    "middleware/storage/replay.py",
    "middleware/storage/index.py",
    "middleware/storage/scan.py",
    "middleware/storage/files.py",
    "middleware/storage/file_range.py",
    "middleware/storage/segment.py",
    "middleware/storage/segments.py",
    "middleware/storage/durability.py",
    "middleware/storage/replicate.py",
    "middleware/storage/log.py",
    "middleware/broker/long_poll.py",
    "middleware/broker/partition.py",
    "middleware/broker/followed.py",
    "middleware/storage/block_log.py",
    "middleware/broker/pubsub/message.py",
    "middleware/broker/pubsub/subscriptions.py",
    "middleware/broker/pubsub/shared.py",
    "middleware/broker/pubsub/trie.py",
    "middleware/broker/pubsub/retained.py",
    "middleware/broker/pubsub/stamps.py",
    "middleware/broker/pubsub/records.py",
    "middleware/broker/pubsub/journal_codec.py",
    "middleware/broker/pubsub/journal.py",
    "middleware/broker/pubsub/restore.py",
    "middleware/broker/pubsub/pubsub.py",
    "middleware/dataplane/p4/bits.py",
    "middleware/fabric/channel/codec.py",
    "middleware/fabric/channel/states.py",
    "middleware/fabric/channel/cutter.py",
    "middleware/fabric/channel/incoming.py",
    "middleware/fabric/channel/outgoing.py",
    "middleware/fabric/channel/events.py",
    "middleware/fabric/channel/greeting.py",
    "middleware/fabric/channel/outbox.py",
    "middleware/fabric/channel/serving.py",
    "middleware/fabric/channel/calling.py",
    "middleware/fabric/channel/session.py",
    "middleware/fabric/carriers/bursts.py",
    "middleware/fabric/carriers/sockets.py",
    "middleware/fabric/carriers/unicast.py",
    "middleware/fabric/carriers/ip_multicast.py",
    "middleware/fabric/core/counters.py",
    "middleware/fabric/core/flight.py",
    "middleware/fabric/core/gaps.py",
    "middleware/fabric/core/live.py",
    "middleware/fabric/core/log.py",
    "middleware/fabric/core/outbox.py",
    "middleware/fabric/core/outcomes.py",
    "middleware/fabric/core/outgoing.py",
    "middleware/fabric/core/pacing.py",
    "middleware/fabric/core/peers.py",
    "middleware/fabric/core/receiver.py",
    "middleware/fabric/core/receivers.py",
    "middleware/fabric/core/reorder.py",
    "middleware/fabric/core/repairs.py",
    "middleware/fabric/core/resending.py",
    "middleware/fabric/core/room.py",
    "middleware/fabric/core/schedule.py",
    "middleware/fabric/core/sender.py",
    "middleware/fabric/core/streams.py",
    "middleware/fabric/core/timing.py",
    "middleware/fabric/core/turn.py",
    "middleware/fabric/origin.py",
    "middleware/fabric/receiving.py",
    "middleware/fabric/fabric.py",
    "middleware/relay/partitions/stream_log.py",
    "middleware/relay/partitions/leading.py",
    "middleware/relay/partitions/replica.py",
    "middleware/relay/partitions/remote.py",
    "middleware/relay/partitions/proxy.py",
    "middleware/relay/partitions/watches.py",
    "middleware/relay/partitions/following.py",
    "middleware/relay/partitions/relay_partitions.py",
    "middleware/relay/cluster.py",
    "spark_connectors/source/columns.py",
    "spark_connectors/source/packed.py",
    "spark_connectors/sink/rows.py",
    "shims/kafka/codec_produce.py",
    "shims/kafka/codec_fetch.py",
    "shims/kafka/codec.py",
    "shims/kafka/session.py",
    "shims/kafka/pending.py",
    "shims/kafka/handlers/produce.py",
    "shims/kafka/handlers/fetch.py",
    "shims/kafka/dispatch.py",
    "shims/kafka/sender.py",
    "shims/kafka/connection.py",
    "shims/mqtt/codec.py",
    "shims/mqtt/codec_read.py",
    "shims/mqtt/codec_publish.py",
    "shims/mqtt/codec_runs.py",
    "shims/mqtt/counting.py",
    "shims/mqtt/runs.py",
    "shims/mqtt/deliveries.py",
    "shims/mqtt/delivery_queue.py",
    "shims/mqtt/inflight.py",
    "shims/mqtt/session_table.py",
    "shims/mqtt/session_output.py",
    "shims/mqtt/session_state.py",
    "shims/mqtt/session_input.py",
    "shims/mqtt/sessions.py",
    "shims/mqtt/subscribing.py",
    "shims/mqtt/restoring.py",
    "shims/mqtt/session.py",
    "shims/mqtt/connection.py",
]

# What a build of the hot modules needs to know of the modules that they import: their types where these
# can be found, and never a reason to fail. `make check` is where types are judged.
MYPY_OPTIONS = ["--follow-imports=silent", "--ignore-missing-imports", "--allow-any-generics"]

# Names stay inside the library: calls between modules then go straight to their target. -O2 takes a third of
# -O3's time on the one large C file, and its smaller code was no slower.
OPT_LEVEL = "2"
HIDDEN = "-fvisibility=hidden"

BUILDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def extensions() -> Sequence[Extension]:
    wanted = os.environ.get("TREECAST_PURE") != "1" and not BUILDS.isdisjoint(sys.argv)
    if not wanted or not HOT_MODULES:
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return pure("mypyc is not here")
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    try:
        built = mypycify(
            [*MYPY_OPTIONS, *(f"src/treecast/{module}" for module in HOT_MODULES)],
            opt_level=OPT_LEVEL,
            debug_level="0",
            group_name="treecast_hot",
        )
    except SystemExit:  # mypyc has said why
        return pure("mypyc refused them")
    for extension in built:
        extension.optional = True
        if os.name == "posix":
            # A list of its own: mypyc gives all extensions the same one.
            extension.extra_compile_args = [*extension.extra_compile_args, HIDDEN]
    return built


def pure(reason: str) -> Sequence[Extension]:
    print(f"treecast: {reason}, so the hot modules stay interpreted", file=sys.stderr)
    return []


setup(ext_modules=list(extensions()))
