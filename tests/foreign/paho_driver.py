"""Runs one script of Eclipse's paho.mqtt.testing against a server: `paho_driver.py SCRIPT HOST PORT [-v]`.

The scripts' own command lines are incompatible with current versions of unittest, so this script sets the
same options, and nothing else. Run it in the suite's `interoperability` folder. The last line printed is
JSON: {"passed": [...], "failed": {test: first line of why}, "skipped": {...}}.
"""

from __future__ import annotations

import importlib
import json
import logging
import signal
import sys
import unittest

LIMIT_S = 90  # for one test; some wait forever

NAMES = ["TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"]
FILTERS = ["TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#"]


class Result(unittest.TextTestResult):
    """Records passed tests, and ends tests that take too long."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.passed = []

    def startTest(self, test):
        super().startTest(test)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 5)  # some tests swallow every exception

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test._testMethodName)


def too_long(number, frame):
    raise TimeoutError(f"the test did not end within {LIMIT_S} s")


def main():
    signal.signal(signal.SIGALRM, too_long)
    script, host, port, *rest = sys.argv[1:]
    sys.path.insert(0, ".")
    module = importlib.import_module(script)
    prefix = f"{script}/" if script == "client_test5" else ""
    module.host, module.port, module.topic_prefix = host, int(port), prefix
    module.topics = [prefix + name for name in NAMES]
    module.wildtopics = [prefix + filter for filter in FILTERS]
    module.nosubscribe_topics = ("test/nosubscribe",)
    logging.getLogger().setLevel(logging.ERROR)
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=2, stream=sys.stderr)
    result = unittest.main(module, argv=[script, *rest], testRunner=runner, exit=False).result
    bad = [*result.failures, *result.errors]
    outcome = {
        "passed": result.passed,
        "failed": {test._testMethodName: text.strip().splitlines()[-1] for test, text in bad},
        "skipped": {test._testMethodName: why for test, why in result.skipped},
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
