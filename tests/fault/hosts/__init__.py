"""Hosts in a lab, under load, with bad links, cuts and kills: `python -m tests.fault.hosts`."""
