"""Joins broker and fabric: what makes the brokers of several hosts one cluster."""
