import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import java.util.ArrayList;
import java.util.List;

/** One topic of MQTT 5 with QoS 1 both ways; a client for the publisher, and one for each subscription. */
final class MqttDriver implements Driver {
    private final String host;
    private final int port;
    private final String topic;
    private final Mqtt5AsyncClient publisher;
    private final List<Mqtt5AsyncClient> clients = new ArrayList<>();

    MqttDriver(String host, int port, String name) {
        this.host = host;
        this.port = port;
        topic = name;
        publisher = connected("publisher");
    }

    private Mqtt5AsyncClient connected(String who) {
        Mqtt5AsyncClient client = Mqtt5Client.builder()
                .identifier(topic + "-" + who)
                .serverHost(host)
                .serverPort(port)
                .buildAsync();
        client.connect().join();
        clients.add(client);
        return client;
    }

    @Override
    public void subscribe(int subscriptions, Arrivals arrivals) {
        for (int number = 0; number < subscriptions; number++) {
            int subscription = number;
            connected("subscription-" + number)
                    .subscribeWith()
                    .topicFilter(topic)
                    .qos(MqttQos.AT_LEAST_ONCE)
                    .callback(publish -> arrivals.arrived(subscription, publish.getPayloadAsBytes()))
                    .send()
                    .join();
        }
    }

    @Override
    public void publish(byte[] payload, Answer answer) {
        publisher
                .publishWith()
                .topic(topic)
                .qos(MqttQos.AT_LEAST_ONCE)
                .payload(payload)
                .send()
                .whenComplete((result, error) -> answer.answered(error != null ? error : refusal(result)));
    }

    private static Throwable refusal(Mqtt5PublishResult result) {
        return result.getError().orElse(null);
    }

    @Override
    public void close() {
        clients.forEach(client -> client.disconnect().join());
    }
}
