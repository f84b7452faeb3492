"""Packet subscriptions on P4 switches: header descriptions, entries, vectors, P4Runtime texts. Pure."""
