"""Three RabbitMQ servers at three sites, joined by agents."""
