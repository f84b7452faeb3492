"""Partitions across hosts: leaders serve them, and hosts with interest hold replicas."""
