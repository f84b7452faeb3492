"""What is measured: servers that the harness starts, asks and stops."""
