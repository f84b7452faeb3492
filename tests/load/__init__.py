"""Runs that measure what a daemon costs at scale."""
