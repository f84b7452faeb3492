"""The relay joins broker and fabric: it makes the brokers of several hosts one cluster."""
