"""Where people go, from the WiFi scanners of many edge clouds, by Spark."""
