"""Movements of people, from the WiFi scanners of many edge clouds, computed by Spark."""
