"""The paper's use case: four VNFs follow people through a city by WiFi scanners' reports. See README.md."""
