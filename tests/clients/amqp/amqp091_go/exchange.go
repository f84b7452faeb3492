// Publishes with confirms, renews its secret, and prints the messages that a second connection gets.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const count = 20

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(url string) (*amqp.Connection, *amqp.Channel) {
	connection, err := amqp.Dial(url)
	check(err)
	channel, err := connection.Channel()
	check(err)
	return connection, channel
}

func main() {
	url, queue := os.Args[1], os.Args[2]
	sending, publisher := open(url)
	receiving, consumer := open(url)
	_, err := publisher.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	check(err)
	check(publisher.Confirm(false))
	check(consumer.Qos(5, 0, false))
	deliveries, err := consumer.Consume(queue, "", false, false, false, false, nil)
	check(err)
	patience, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for number := 0; number < count; number++ {
		message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(fmt.Sprint(number))}
		confirm, err := publisher.PublishWithDeferredConfirmWithContext(patience, "", queue, false, false, message)
		check(err)
		taken, err := confirm.WaitContext(patience)
		check(err)
		if !taken {
			check(fmt.Errorf("publish %d was refused", number))
		}
	}
	check(sending.UpdateSecret("guest", "it expired"))
	got := []string{}
	for len(got) < count {
		select {
		case delivery := <-deliveries:
			got = append(got, string(delivery.Body))
			check(delivery.Ack(false))
		case <-patience.Done():
			check(patience.Err())
		}
	}
	check(sending.Close())
	check(receiving.Close())
	check(json.NewEncoder(os.Stdout).Encode(got))
}
