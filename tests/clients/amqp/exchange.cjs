// Publishes with confirms, renews its secret meanwhile, and prints the messages that a second connection gets: [[body, redelivered], ...].
const amqp = require("amqplib");
const [url, queue] = process.argv.slice(2);
const count = 20;

async function main() {
  const receiving = await amqp.connect(url);
  const sending = await amqp.connect(url);
  const publisher = await sending.createConfirmChannel();
  const consumer = await receiving.createChannel();
  await publisher.assertQueue(queue, { durable: true });
  await consumer.prefetch(5);
  const got = [];
  const done = new Promise((resolve) => {
    consumer.consume(queue, (message) => {
      got.push([message.content.toString(), message.fields.redelivered]);
      consumer.ack(message);
      if (got.length === count) resolve();
    });
  });
  for (let number = 0; number < count; number++) {
    publisher.sendToQueue(queue, Buffer.from(String(number)), { persistent: true });
  }
  await sending.updateSecret(Buffer.from("guest"), "it expired");
  await publisher.waitForConfirms();
  await done;
  console.log(JSON.stringify(got));
  await receiving.close();
  await sending.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
