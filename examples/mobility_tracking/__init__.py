"""The paper's use case: four VNFs follow people through a city, by what WiFi scanners see. README.md."""
