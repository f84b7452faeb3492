// Pins amqp091-go, with which tests/clients/amqp/test_languages.py talks to a daemon. go.sum has its digests.
module treecast/tests/clients/amqp091_go

go 1.26.0

require github.com/rabbitmq/amqp091-go v1.10.0
