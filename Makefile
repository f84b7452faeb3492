# Each target does its own set-up: a virtual environment, and nothing outside this folder.
#
#   make demo      two daemons, clients of Kafka, AMQP and MQTT, two kill -9, and a table that says what arrived
#   make demo-agents  three RabbitMQ servers at three sites, joined by agents; one cut off, one killed   (DEMO=..., as root)
#   make demo-pipeline  interests shift, and a pipeline on Spark shortens headers; a picture in out/   (DEMO=...)
#   make test      all tests; unit tests of the hot modules with these compiled   (TEST=tests/x SLOWEST=60)
#   make nightly   long forms of some tests, which `make test` leaves out
#   make check     what a change must pass: format, lint, types, layers, tests
#   make advisories  asks an advisory database about the run-time dependencies; needs a network that reaches one
#   make site      the documentation as a site in out/site; dead links are errors
#   make pages     writes what pages derive from the code: settings, reasons, pictures
#   make dist      sdist and wheel in dist/, each installed and run in an empty environment
#   make bench     Treecast against Apache Kafka, as ratios        (BENCH=... passes options)
#   make bench-fabric  two daemons against one, RabbitMQ federation and MirrorMaker 2   (BENCH=...)
#   make bench-mqtt  the MQTT face against Mosquitto              (BENCH=...)
#   make bench-mqtt-hosts  MQTT from one host to another, against Mosquitto's bridge   (BENCH=...)
#   make bench-amqp  the AMQP face against RabbitMQ, on one host and from one to another   (BENCH=...)
#   make bench-switch  the P4 switch against Open vSwitch, as root  (BENCH=...)
#   make bench-spark  the Spark source and sink against Spark's Kafka connector   (BENCH=...)
#   make foreign   other people's suites, clients and P4 programs  (SUITES=DIR for those not in a registry)
#   make crash     300 kills of the daemon under load, resumable   (CRASH=... passes options)
#   make crash-mqtt  the same under MQTT load of QoS 1 and 2           (CRASH=... passes options)
#   make crash-amqp  the same under AMQP load with confirms           (CRASH=... passes options)
#   make crash-agents  100 kills of agents, RabbitMQ servers and the coordinator under load, and cut links   (CRASH=..., as root)
#   make power     60 power losses under load of all faces, on LazyFS; LAZYFS names its program   (POWER="--count 6")
#   make crash-spark  300 kills of daemon and workers and 30 of the driver of a Spark query   (CRASH=...)
#   make crash-pipeline  30 kills of the pipeline on Spark, and of the daemon beside it   (CRASH=...)
#   make crash-apps  Kafka Streams, Connect and MirrorMaker 2 killed in mid-stream   (APPS="streams --kills 20")
#   make stare     100,000 states over 20 lossy emulated switches     (STARE="--states 2000 --seed 7")
#   make crash-relay  hosts that send on to their zone are killed 20 times, as root   (KILLS=50)
#   make strangers  clients without a secret beside a steady pair of each face   (STRANGERS="--only kafka-bombs")
#   make fuzz      random bytes that are almost right at each face, ten minutes each   (FUZZ="mqtt --seconds 60")
#   make fuzz-segments  segments of all kinds with a valid tag, ten minutes   (FUZZ="--seconds 60 --seed 7")
#   make soak      twenty minutes in which topics, queues and sessions come and go   (SOAK="--seconds 60")
#   make hosts     several hosts on bad links, cut off, killed     (HOSTS="loss --loss 0.1 --seconds 60")
#   make hosts-spark  executors on several hosts read from their own hosts' daemons, as root   (SPARK="--hosts 4")

# Some environments forbid Python's caches. Each of the many daemons then compiles all of its modules, which takes twice as
# long as all else that it does until it serves.
unexport PYTHONDONTWRITEBYTECODE

PYTHON   ?= python3
VENV     := .venv
COMPILED := .venv-compiled
BUILDER  := .venv-build
WHEEL    := .cache/wheel
SDIST    := .cache/sdist
PY       := $(VENV)/bin/python
SELF     := $(MAKE)  # under another name: make -n runs recipes that name it

.PHONY: help setup compiled compiled-unit servers install-test dist demo demo-agents demo-pipeline test nightly unit check static style types house advisories site pages format proto bench bench-fabric bench-mqtt bench-mqtt-hosts bench-amqp bench-switch bench-spark foreign crash crash-mqtt crash-amqp crash-agents crash-spark crash-pipeline crash-apps crash-relay power hosts hosts-spark strangers fuzz fuzz-segments soak stare clean

help:
	@sed -n 's/^#   //p' Makefile

# Everyday work is on an interpreted, editable install: a stale compiled file would shadow its source.
$(VENV)/.installed: pyproject.toml setup.py
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV)"
	@TREECAST_PURE=1 $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[test,bench,spark,docs]'
	@touch $@

setup: $(VENV)/.installed

# The same source, with the hot modules compiled, installed as a user would install it: by pip, in an environment where
# nothing but pip is. What the build needs is then what pyproject.toml says, and not what happens to be installed here.
HOT := $(shell find middleware shims agents spark_connectors -name '*.py' 2>/dev/null)
$(COMPILED)/.installed: pyproject.toml setup.py $(HOT)
	@test -x $(COMPILED)/bin/pip || $(PYTHON) -m venv $(COMPILED)
	@test -x $(BUILDER)/bin/pip || $(PYTHON) -m venv $(BUILDER)
	@echo "compiling into $(COMPILED)"
	@touch $(COMPILED)/.began  # what is edited while it compiles is newer than this
	@rm -rf build $(WHEEL)
	@$(BUILDER)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL) .
	@$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo $(WHEEL)/*.whl)[test,bench]"
	@$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall $(WHEEL)/*.whl
	@ls $(COMPILED)/lib/python3*/site-packages/treecast_hot__mypyc*.so >/dev/null 2>&1 || { \
		echo "the hot modules were not compiled; '$(BUILDER)/bin/python -m pip wheel -v --no-deps .' says why" >&2; exit 1; }
	@mv $(COMPILED)/.began $@

compiled: $(COMPILED)/.installed

# What is released: a source distribution, and a wheel that is built from it and runs on other Linux systems of this
# processor and Python. Each is installed and run in an environment of its own that was empty.
dist: setup
	@TREECAST_PURE=1 $(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dist]'
	@rm -rf dist build
	@$(PY) -m build --outdir dist/linux . >/dev/null
	@mv dist/linux/*.tar.gz dist
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --wheel-dir dist dist/linux/*.whl
	@rm -r dist/linux
	@$(PY) -m tests.install dist/*.whl dist/*.tar.gz

demo: setup
	@$(PY) -m examples.demo $(DEMO)

demo-agents: setup
	@$(PY) -m examples.agents $(DEMO)

demo-pipeline: setup
	@$(PY) -m examples.spark.pipeline $(DEMO)

# Unit tests run once: with the hot modules compiled, as users have them, or interpreted where none of these has a part
# (COLD) or a test replaces what compiled code would not look up (REPLACING); `make unit` runs all interpreted. The hot modules
# are compiled beside the interpreted ones. Unit tests wait for half of their time, for sockets and leases: two for each core. What
# starts servers and clients waits for longer; SERVER_WORKERS take what is longest first (tests/schedule.py).
UNIT_WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
SERVER_WORKERS ?= 4
HOUSE ?= tests/house
SLOWEST ?= 20
DURATIONS := --durations $(SLOWEST) --durations-min 1
UNIT := -n $(UNIT_WORKERS) --dist worksteal $(DURATIONS)
SERVERS := -n $(SERVER_WORKERS) --dist loadscope --no-loadscope-reorder --ignore tests/house --ignore tests/unit $(DURATIONS)
# Up to three server tests that fail beside others run once more, alone: what fails then is broken, what passes is a race,
# of the product or of the test, and the first report shows it. Unit tests get no second chance.
ALONE := the tests that failed run once more, with nothing beside them
AGAIN := --last-failed --last-failed-no-failures none --ignore tests/house --ignore tests/unit $(DURATIONS)
COLD := bench broker/groups cli control emulator evaluation faces filters lab load relay/homes segments stare \
	p4/frontend p4/p4runtime p4/test_camus_examples.py p4/test_srv6_replication.py p4/test_subscription_changes.py
REPLACING := fabric/test_invariants.py pipeline queues/test_links.py relay/test_partition_ahead.py spark
INTERPRETED_UNIT := $(UNIT) $(addprefix tests/unit/,$(COLD) $(REPLACING))
COMPILED_UNIT := $(UNIT) tests/unit $(addprefix --ignore tests/unit/,$(COLD)) --compiled

test: setup
ifdef TEST
	@$(PY) -m pytest $(TEST) $(DURATIONS)
else
	@mkdir -p .cache; echo "compiling the hot modules meanwhile, into $(COMPILED)"
	@$(SELF) --no-print-directory compiled >.cache/compiled.log 2>&1 & compiling=$$!; \
	trap 'kill $$compiling 2>/dev/null' EXIT; \
	$(PY) -m pytest $(INTERPRETED_UNIT) $(HOUSE) && \
	{ wait $$compiling || { cat .cache/compiled.log >&2; exit 1; }; }
	@$(SELF) --no-print-directory compiled-unit
	@$(SELF) --no-print-directory -j 2 --output-sync=line servers install-test
endif

servers: setup
	@$(PY) -m pytest $(SERVERS) --maxfail 4 || { test $$? -eq 1 && echo "$(ALONE)" && $(PY) -m pytest $(AGAIN); }

# The tests of the hot modules, with these compiled.
compiled-unit: compiled
	@$(COMPILED)/bin/python -m pytest $(COMPILED_UNIT)

# The wheel and the source distribution, each installed and run in an environment of its own. Much of that waits for pip.
install-test: setup compiled
	@$(PY) -m tests.install $(WHEEL)/*.whl
	@rm -rf $(SDIST) && $(PY) -m build --sdist --outdir $(SDIST) . >/dev/null
	@$(PY) -m tests.install --interpreted $(SDIST)/*.tar.gz

nightly: setup
	@$(PY) -m pytest --nightly tests

unit: setup
	@$(PY) -m pytest $(UNIT) tests/unit tests/house

static: style types house

style: setup
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m codespell_lib
	@$(PY) -m bandit --quiet --configfile pyproject.toml -ll --recursive middleware shims agents spark_connectors

types: setup
	@$(PY) -m mypy -p treecast.middleware -p treecast.shims -p treecast.agents -p treecast.spark_connectors -p bench -p examples

house: setup
	@$(PY) -m pytest tests/house

check: static test

# Strict: what mkdocs warns of is an error. And nothing is loaded from other hosts.
site: setup
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@! grep -rEo --include='*.html' '<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//[^>]*' out/site | \
		grep -v 'rel="canonical"' || { \
		echo "these pages load something from another host" >&2; exit 1; }
	@echo "out/site/index.html"

pages: setup
	@$(PY) -m treecast.middleware.daemon.manual docs/operating.md
	@$(PY) -m tests.house.reasons
	@$(PY) -m tests.house.supply docs/dependencies.md
	@$(PY) docs/sequences.py
	@$(PY) docs/rooms.py
	@$(PY) docs/relay_pictures.py

# Not in CI, which reaches no advisory database: `tests/house/advisories.toml` is the list that it checks.
advisories: setup
	@$(PY) -m tests.house.supply > .cache/runtime.txt
	@$(PY) -m venv .cache/audit && .cache/audit/bin/pip install --quiet pip-audit
	@.cache/audit/bin/pip-audit --requirement .cache/runtime.txt --no-deps --disable-pip --strict

fuzz-segments: setup
	@$(PY) -m tests.fuzz segments $(FUZZ)

format: setup
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

bench: setup compiled
	@$(PY) -m bench kafka --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-fabric: setup compiled
	@$(PY) -m bench fabric --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-mqtt: setup compiled
	@$(PY) -m bench mqtt --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-mqtt-hosts: setup compiled
	@$(PY) -m bench mqtt-hosts --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-amqp: setup compiled
	@$(PY) -m bench amqp --treecast-python $(COMPILED)/bin/python $(BENCH)
	@$(PY) -m bench amqp-hosts --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-switch: setup compiled
	@$(PY) -m bench switch --treecast-python $(COMPILED)/bin/python $(BENCH)

bench-spark: setup compiled
	@$(PY) -m bench spark --treecast-python $(COMPILED)/bin/python $(BENCH)

proto: setup
	@$(PY) proto/generate

foreign: setup
	@$(PY) -m tests.foreign $(FOREIGN)
	@$(PY) -m tests.foreign.p4runtime_shell
	@! command -v go >/dev/null || $(PY) -m tests.foreign.franz_go
	@! PATH="$$PATH:/usr/lib/rabbitmq/bin" command -v rabbitmq-server >/dev/null || $(PY) -m tests.foreign.amqp_frames
	@! PATH="$$PATH:/usr/lib/rabbitmq/bin" command -v rabbitmq-server >/dev/null || $(PY) -m tests.foreign.amqp_methods
	@$(PY) -m tests.foreign.amqp_methods --far
	@! PATH="$$PATH:/usr/sbin" command -v mosquitto >/dev/null || $(PY) -m tests.foreign.mqtt_packets
	@$(PY) -m tests.foreign.mqtt_packets --far
	@! command -v java >/dev/null || $(PY) -m tests.foreign.kafka_requests
	@$(PY) -m tests.foreign.kafka_requests --far
	@test -z "$(SUITES)" || $(PY) -m tests.foreign.librdkafka --suites "$(SUITES)"
	@test -z "$(SUITES)" || $(PY) -m tests.foreign.p4_samples --suites "$(SUITES)"
	@test -z "$(SUITES)" || $(PY) -m tests.foreign.paho --suites "$(SUITES)"
	@test -z "$(SUITES)" || $(PY) -m tests.foreign.paho --suites "$(SUITES)" --cluster
	@test -z "$(SUITES)" || $(PY) -m tests.foreign.pika_suite --suites "$(SUITES)"
	@test -z "$(P4C)" || $(PY) -m tests.foreign.p4_real --p4c "$(P4C)" $(P4_REAL)

APPS ?= all
crash-apps: setup compiled
	@$(PY) -m tests.fault.kafka_apps --python $(COMPILED)/bin/python $(APPS)

KILLS ?= 20
crash-relay: setup
	@TREECAST_RELAY_KILLS=$(KILLS) $(PY) -m pytest tests/network/test_relay.py -k killed_in_mid_stream

HOSTS ?= all
hosts: setup compiled
	@$(PY) -m tests.fault.hosts --python $(COMPILED)/bin/python $(HOSTS)

hosts-spark: setup compiled
	@$(PY) -m tests.fault.spark_hosts --python $(COMPILED)/bin/python $(SPARK)

strangers: setup compiled
	@$(PY) -m tests.fault.strangers --python $(COMPILED)/bin/python $(STRANGERS)

fuzz: setup compiled
	@$(PY) -m tests.fuzz.live --python $(COMPILED)/bin/python $(FUZZ)

soak: setup compiled
	@$(PY) -m tests.fault.soak --python $(COMPILED)/bin/python $(SOAK)

stare: setup
	@$(PY) -m tests.fault.stare $(STARE)

crash: setup
	@$(PY) tests/fault/crash_run.py $(CRASH)

crash-mqtt: setup
	@$(PY) tests/fault/mqtt_crash_run.py $(CRASH)

crash-amqp: setup
	@$(PY) tests/fault/amqp_crash_run.py $(CRASH)

crash-agents: setup
	@$(PY) tests/fault/agents_crash_run.py --count 100 $(CRASH)

power: setup
	@$(PY) tests/fault/power_run.py $(POWER)

crash-spark: setup
	@$(PY) tests/fault/spark_run.py $(CRASH)

crash-pipeline: setup
	@$(PY) tests/fault/pipeline_run.py --count 30 $(CRASH)

clean:
	rm -rf $(VENV) $(COMPILED) $(BUILDER) build dist .cache out .mypy_cache .ruff_cache .pytest_cache .hypothesis
