"""Workloads for brokers."""
