"""Two RabbitMQ servers with agents under load, while parts of them are killed and their links are cut."""
