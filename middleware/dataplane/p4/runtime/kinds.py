"""Values of standard_metadata.instance_type, as the behavioral model has them."""

NORMAL = 0
INGRESS_CLONE = 1
EGRESS_CLONE = 2
RECIRC = 4
REPLICATION = 5
RESUBMIT = 6
