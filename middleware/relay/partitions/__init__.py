"""Partitions across hosts: their leaders answer, and hosts with interest hold replicas."""
