"""What is done to a broker through its Kafka face."""
