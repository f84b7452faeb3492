// Publishes with each QoS, and prints the messages that a second client gets: [[topic, payload, qos], ...].
const mqtt = require("mqtt");
const [url, version, prefix] = process.argv.slice(2);
const options = { protocolVersion: Number(version), reconnectPeriod: 0 };

async function main() {
  const subscriber = await mqtt.connectAsync(url, options);
  const publisher = await mqtt.connectAsync(url, options);
  const got = [];
  const done = new Promise((resolve) => {
    subscriber.on("message", (topic, payload, packet) => {
      got.push([topic, payload.toString(), packet.qos]);
      if (got.length === 3) resolve();
    });
  });
  await subscriber.subscribeAsync(`${prefix}/#`, { qos: 2 });
  for (const qos of [0, 1, 2]) await publisher.publishAsync(`${prefix}/${qos}`, "hello", { qos });
  await done;
  console.log(JSON.stringify(got));
  await publisher.endAsync();
  await subscriber.endAsync();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
