"""Event streams: they carry messages of MQTT clients between hosts."""
