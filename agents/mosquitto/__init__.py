"""The agent beside a Mosquitto, or another broker of MQTT."""
