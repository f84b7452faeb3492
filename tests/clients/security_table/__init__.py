"""One table of clients and log-ins: `python -m tests.clients.security_table`."""
