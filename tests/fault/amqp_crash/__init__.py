"""The parts of the AMQP crash run: see amqp_crash_run.py."""
