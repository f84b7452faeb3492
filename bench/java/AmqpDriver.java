import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * One durable fanout exchange; a durable queue for each subscription, read with automatic acknowledgement; persistent
 * messages under publisher confirms. All on one connection, a channel each.
 */
final class AmqpDriver implements Driver {
    private static final AMQP.BasicProperties PERSISTENT = new AMQP.BasicProperties.Builder().deliveryMode(2).build();

    private final Connection connection;
    private final Channel channel;
    private final String exchange;
    private final ConcurrentNavigableMap<Long, Answer> unconfirmed = new ConcurrentSkipListMap<>();

    AmqpDriver(String host, int port, String name) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(host);
        factory.setPort(port);
        connection = factory.newConnection();
        exchange = name;
        channel = connection.createChannel();
        channel.exchangeDeclare(exchange, "fanout", true);
        channel.confirmSelect();
        channel.addConfirmListener(new ConfirmListener() {
            @Override
            public void handleAck(long tag, boolean multiple) {
                settle(tag, multiple, null);
            }

            @Override
            public void handleNack(long tag, boolean multiple) {
                settle(tag, multiple, new IOException("the server has refused message " + tag));
            }
        });
    }

    private void settle(long tag, boolean multiple, Throwable error) {
        if (!multiple) {
            unconfirmed.remove(tag).answered(error);
            return;
        }
        ConcurrentNavigableMap<Long, Answer> settled = unconfirmed.headMap(tag, true);
        settled.values().forEach(answer -> answer.answered(error));
        settled.clear();
    }

    @Override
    public void subscribe(int subscriptions, Arrivals arrivals) throws Exception {
        for (int number = 0; number < subscriptions; number++) {
            int subscription = number;
            Channel reading = connection.createChannel();
            String queue = exchange + "-" + number;
            reading.queueDeclare(queue, true, false, false, null);
            reading.queueBind(queue, exchange, "");
            reading.basicConsume(queue, true, new DefaultConsumer(reading) {
                @Override
                public void handleDelivery(String tag, Envelope where, AMQP.BasicProperties properties, byte[] body) {
                    arrivals.arrived(subscription, body);
                }
            });
        }
    }

    @Override
    public void publish(byte[] payload, Answer answer) throws IOException {
        unconfirmed.put(channel.getNextPublishSeqNo(), answer); // before it is sent: the confirm may be faster
        channel.basicPublish(exchange, "", PERSISTENT, payload);
    }

    @Override
    public void close() throws Exception {
        connection.close();
    }
}
