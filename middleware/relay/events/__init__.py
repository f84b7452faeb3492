"""Event streams: what MQTT clients publish, brought from host to host."""
