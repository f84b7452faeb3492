// Pins amqp091-go, a client of tests/clients/amqp/test_languages.py. go.sum has its digests.
module treecast/tests/clients/amqp091_go

go 1.26.0

require github.com/rabbitmq/amqp091-go v1.10.0
