"""The parts that agents of all kinds share: settings, status, admin address."""
