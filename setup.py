"""Builds the compiled form of the hot modules.

The list below is complete: each module is plain typed Python that also runs interpreted. Without a C
compiler, without mypyc, or with TREECAST_PURE=1, the package installs without compiled modules and only runs
slower. Either all of them are compiled or none: they share one library, which cannot be loaded in part. The
package records the outcome and its reason for `treecast status` and `treecast doctor`.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HOT_MODULES: list[str] = [
    "middleware/model/buffers.py",
    "middleware/model/ration.py",
    "middleware/model/budget.py",
    "middleware/model/passes.py",
    "middleware/model/timers.py",
    "middleware/wire/mqtt_publish.py",
    "middleware/wire/zstd_frame.py",
    "middleware/wire/batch.py",
    "middleware/wire/record_values.py",
    "middleware/wire/kafka_primitives.py",
    "middleware/wire/segment_faults.py",
    "middleware/wire/segment_keys.py",
    "middleware/wire/segment.py",
    "middleware/wire/segment_assembly.py",
    "middleware/filters/compiler/bounds.py",
    "middleware/filters/compiler/boxes.py",
    "middleware/filters/compiler/diagram.py",
    "middleware/filters/compiler/tables.py",
    "middleware/routing/bits.py",
    "middleware/routing/network.py",
    "middleware/routing/rooted.py",
    "middleware/routing/steiner/common.py",
    "middleware/routing/steiner/heuristics.py",
    "middleware/routing/virtual/growth.py",
    "middleware/routing/virtual/layout.py",
    "middleware/routing/virtual/encoder.py",
    "middleware/storage/aborted.py",
    "middleware/storage/epochs.py",
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
    "middleware/storage/writing.py",
    "middleware/storage/forgetting.py",
    "middleware/storage/log.py",
    "middleware/broker/groups/offsets.py",
    "middleware/broker/groups/journal.py",
    "middleware/broker/groups/at_once.py",
    "middleware/broker/long_poll.py",
    "middleware/broker/partition.py",
    "middleware/broker/followed.py",
    "middleware/storage/block_log.py",
    "middleware/storage/block_sync.py",
    "middleware/broker/pubsub/message.py",
    "middleware/broker/pubsub/subscriptions.py",
    "middleware/broker/pubsub/shared.py",
    "middleware/broker/pubsub/trie.py",
    "middleware/broker/pubsub/retained.py",
    "middleware/broker/pubsub/stamps.py",
    "middleware/broker/pubsub/reach.py",
    "middleware/broker/pubsub/journal_codec.py",
    "middleware/broker/pubsub/journal_segments.py",
    "middleware/broker/pubsub/journal.py",
    "middleware/broker/pubsub/restore.py",
    "middleware/broker/pubsub/pubsub.py",
    "middleware/broker/turn.py",
    "middleware/broker/queues/deaths.py",
    "middleware/broker/queues/message.py",
    "middleware/broker/queues/recorder.py",
    "middleware/broker/queues/consumers.py",
    "middleware/broker/queues/backlog.py",
    "middleware/broker/queues/any_queue.py",
    "middleware/broker/queues/queue.py",
    "middleware/broker/queues/streams.py",
    "middleware/broker/queues/exchange.py",
    "middleware/broker/queues/routing.py",
    "middleware/broker/queues/ledger.py",
    "middleware/broker/queues/policed.py",
    "middleware/broker/queues/bindings.py",
    "middleware/broker/queues/exchange_definitions.py",
    "middleware/broker/queues/queue_definitions.py",
    "middleware/broker/queues/virtual_host.py",
    "middleware/broker/queues/journal.py",
    "middleware/broker/queues/block_store.py",
    "middleware/broker/queues/elsewhere.py",
    "middleware/broker/queues/shared.py",
    "middleware/broker/queues/spool.py",
    "middleware/broker/queues/joined.py",
    "middleware/broker/queues/host.py",
    "middleware/dataplane/p4/bits.py",
    "middleware/fabric/channel/codec.py",
    "middleware/fabric/channel/states.py",
    "middleware/fabric/channel/incoming.py",
    "middleware/fabric/channel/outgoing.py",
    "middleware/fabric/channel/greeting.py",
    "middleware/fabric/channel/calls.py",
    "middleware/fabric/channel/session.py",
    "middleware/fabric/channel/values.py",
    "middleware/fabric/channel/peers.py",
    "middleware/fabric/channel/link.py",
    "middleware/fabric/channel/deadlines.py",
    "middleware/fabric/channel/outcomes.py",
    "middleware/fabric/channel/tls.py",
    "middleware/fabric/channel/channels.py",
    "middleware/fabric/channel/dispatch.py",
    "middleware/fabric/sockets/udp.py",
    "middleware/fabric/carriers/unicast.py",
    "middleware/fabric/carriers/ip_multicast.py",
    "middleware/fabric/carriers/stare.py",
    "middleware/fabric/core/asking.py",
    "middleware/fabric/core/counters.py",
    "middleware/fabric/core/evidence.py",
    "middleware/fabric/core/gaps.py",
    "middleware/fabric/core/holding.py",
    "middleware/fabric/core/live.py",
    "middleware/fabric/core/log.py",
    "middleware/fabric/core/outlet.py",
    "middleware/fabric/core/outgoing.py",
    "middleware/fabric/core/pacing.py",
    "middleware/fabric/core/pairs.py",
    "middleware/fabric/core/peers.py",
    "middleware/fabric/core/receiver.py",
    "middleware/fabric/core/receivers.py",
    "middleware/fabric/core/reorder.py",
    "middleware/fabric/core/repairs.py",
    "middleware/fabric/core/reporting.py",
    "middleware/fabric/core/resending.py",
    "middleware/fabric/core/rest.py",
    "middleware/fabric/core/sender.py",
    "middleware/fabric/core/streams.py",
    "middleware/fabric/core/timing.py",
    "middleware/fabric/core/turn.py",
    "middleware/fabric/core/vain.py",
    "middleware/fabric/origin.py",
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
    "middleware/relay/events/batches.py",
    "middleware/relay/events/stream.py",
    "middleware/relay/events/sending.py",
    "middleware/relay/events/receiving.py",
    "middleware/relay/queues/links.py",
    "spark_connectors/source/columns.py",
    "spark_connectors/source/packed.py",
    "spark_connectors/sink/rows.py",
    "spark_connectors/sink/digest.py",
    "shims/kafka/codec_fetch.py",
    "shims/kafka/codec.py",
    "shims/kafka/codec_commit.py",
    "shims/kafka/session.py",
    "shims/kafka/starting.py",
    "shims/kafka/handlers/produce.py",
    "shims/kafka/handlers/fetch.py",
    "shims/kafka/handlers/repeated.py",
    "shims/kafka/dispatch.py",
    "shims/kafka/sender.py",
    "shims/kafka/throttling.py",
    "shims/kafka/connection.py",
    "shims/mqtt/codec.py",
    "shims/mqtt/codec_read.py",
    "shims/mqtt/codec_publish.py",
    "shims/mqtt/deliveries.py",
    "shims/mqtt/session_table.py",
    "shims/mqtt/session_output.py",
    "shims/mqtt/session_state.py",
    "shims/mqtt/session_connection.py",
    "shims/mqtt/sessions.py",
    "shims/mqtt/session_publishing.py",
    "shims/mqtt/session_connecting.py",
    "shims/mqtt/subscribing.py",
    "shims/mqtt/restoring.py",
    "shims/mqtt/session.py",
    "shims/mqtt/connection.py",
    "shims/amqp/codec.py",
    "shims/amqp/codec_properties.py",
    "shims/amqp/codec_publish.py",
    "shims/amqp/codec_deliver.py",
    "shims/amqp/codec_client.py",
    "shims/amqp/counting.py",
    "shims/amqp/session_waiting.py",
    "shims/amqp/session_output.py",
    "shims/amqp/session_state.py",
    "shims/amqp/session_messages.py",
    "shims/amqp/session_definitions.py",
    "shims/amqp/session_unsettled.py",
    "shims/amqp/session_settling.py",
    "shims/amqp/session_consuming.py",
    "shims/amqp/records.py",
    "shims/amqp/session_publishing.py",
    "shims/amqp/session_channels.py",
    "shims/amqp/session_opening.py",
    "shims/amqp/session.py",
    "shims/amqp/connection.py",
    "shims/amqp/server.py",
    "agents/rabbitmq/codec.py",
]

# Type information about modules imported by hot modules: used if found, never a reason to fail. `make check`
# judges types.
MYPY_OPTIONS = ["--follow-imports=silent", "--ignore-missing-imports", "--allow-any-generics"]

# Names stay inside the library: calls between modules then go straight to their target. -O2 takes a third of
# -O3's time, and its smaller code was no slower.
OPT_LEVEL = "2"
# mypyc passes -Werror, but another compiler's warning must not leave the modules interpreted.
GNU_OPTIONS = ["-fvisibility=hidden", "-Wno-error"]

BUILDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}

NOTE = Path("treecast", "built.json")  # in the package; `middleware/daemon/compiled.py` reads it
COMPILED = "compiled"

# The outcome for the hot modules in this build: a word of `middleware/daemon/compiled.py`, and a detail.
fate = {"form": COMPILED, "detail": ""}


def extensions() -> Sequence[Extension]:
    """Returns the hot modules as extensions; none if they stay interpreted, with the reason in `fate`."""
    if BUILDS.isdisjoint(sys.argv):
        return []
    if os.environ.get("TREECAST_PURE") == "1":
        return interpreted("pure", "TREECAST_PURE=1 was set")
    if refusal := compiler_refusal():
        return interpreted(*refusal)
    try:
        from mypyc.build import mypycify
    except ImportError:
        return interpreted("no-mypyc", "mypyc is not here")
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            built = mypycify(
                [*MYPY_OPTIONS, *(f"src/treecast/{module}" for module in HOT_MODULES)],
                opt_level=OPT_LEVEL,
                debug_level="0",
                group_name="treecast_hot",
                # One C file per module, so that all processors compile: one large file takes minutes.
                multi_file=True,
            )
    except SystemExit:
        print(said.getvalue(), file=sys.stderr)
        first = next((line for line in said.getvalue().splitlines() if "error:" in line), "")
        return interpreted("refused", f"mypyc refused them: {first}" if first else "mypyc refused them")
    for extension in built:
        if os.name == "posix":
            # A list of its own: mypyc gives all extensions the same one.
            extension.extra_compile_args = [*extension.extra_compile_args, *GNU_OPTIONS]
    return built


def compiler_refusal() -> tuple[str, str] | None:
    """Returns why C cannot be compiled here, as a form and a detail; None if it can."""
    from distutils import ccompiler, errors, sysconfig  # setuptools' own, in place of Python's

    compiler = ccompiler.new_compiler()
    try:
        sysconfig.customize_compiler(compiler)
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text(
                "#include <Python.h>\nint treecast_probe(void) { return PY_VERSION_HEX != 0; }\n"
            )
            headers = [sysconfig.get_python_inc(), sysconfig.get_python_inc(plat_specific=True)]
            compiler.compile([str(probe)], output_dir=folder, include_dirs=headers)
    except (errors.CCompilerError, errors.DistutilsError) as error:
        program = getattr(compiler, "compiler", [""])[0]
        if not program or shutil.which(program) is None:
            return "no-compiler", f"no C compiler was found ({program or error})"
        return "no-headers", f"{program} cannot compile a file that includes Python.h"
    return None


def interpreted(form: str, detail: str) -> Sequence[Extension]:
    fate.update(form=form, detail=detail)
    say(f"treecast: {detail}, so the hot modules stay interpreted; `treecast doctor` says what to do")
    return []


def say(text: str) -> None:
    """Prints to the build's output and to the terminal: pip and others show that output for failures only."""
    print(text, file=sys.stderr)
    if not sys.stderr.isatty():
        with contextlib.suppress(OSError), open("/dev/tty", "w") as terminal:
            terminal.write(f"\r\n{text}\r\n")


def write_note(folder: str) -> None:
    path = Path(folder) / NOTE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fate) + "\n")


class BuildPackage(build_py):
    """Adds the note to the package; an editable install has none, since it is the source folder itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_note(self.build_lib)


class BuildAllOrNone(build_ext):
    """Compiles on all processors; discards all compiled modules if the compiler refuses one of them."""

    def build_extensions(self) -> None:
        from distutils import errors

        try:
            with ThreadPool(processors()) as pool:
                self.compile_in(pool)
                super().build_extensions()
        except (errors.CCompilerError, errors.DistutilsError) as error:
            for path in self.get_outputs():
                Path(path).unlink(missing_ok=True)
            self.extensions = []
            interpreted("c-failed", f"the C compiler refused what mypyc wrote ({error})")
        else:
            say(f"treecast: {len(HOT_MODULES)} hot modules were compiled")
        if not self.inplace:
            write_note(self.build_lib)

    def compile_in(self, pool: ThreadPool) -> None:
        """Gives each source file a compiler process of its own; distutils compiles one after the other."""
        alone = self.compiler.compile

        def together(sources: list[str], *args: Any, **kwargs: Any) -> list[str]:
            objects = pool.map(lambda source: alone([source], *args, **kwargs), sources, chunksize=1)
            return [path for paths in objects for path in paths]

        self.compiler.compile = together


def processors() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


setup(ext_modules=list(extensions()), cmdclass={"build_py": BuildPackage, "build_ext": BuildAllOrNone})
