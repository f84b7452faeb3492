"""Sidecars of brokers that already stand."""
