"""Anomalies in the telemetry of switches, found by Spark behind a filter at the daemon."""
