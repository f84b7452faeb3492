"""The parts of the MQTT crash run: see mqtt_crash_run.py."""
