// RabbitMQ's Java client against one broker: `java Scenarios URL PREFIX`. Each scenario prints `ok NAME`, or
// `failed NAME: REASON`. With a third argument, `recover`, only the recovery of a connection is shown: it prints
// `ready`, and after the broker has come back, the bodies of what it got.
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.CancelCallback;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.Return;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.DefaultCredentialsProvider;
import com.rabbitmq.client.impl.DefaultCredentialsRefreshService;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

public class Scenarios {
    static final long PATIENCE = 60_000;
    static final CancelCallback NO_CANCEL = tag -> {};
    static ConnectionFactory factory;
    static String prefix;

    interface Scenario { void run(Channel channel, String name) throws Exception; }

    public static void main(String[] arguments) throws Exception {
        factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        prefix = arguments[1];
        if (arguments.length > 2) {
            recover();
            System.exit(0);
        }
        run("confirms", Scenarios::confirms);
        run("asynchronous confirms", Scenarios::asynchronousConfirms);
        run("returns", Scenarios::returns);
        run("headers of all types", Scenarios::headers);
        run("large bodies", Scenarios::largeBodies);
        run("prefetch and acknowledgements", Scenarios::prefetch);
        run("dead letters", Scenarios::deadLetters);
        run("exchanges", Scenarios::exchanges);
        run("quorum queue", Scenarios::quorum);
        run("transaction", Scenarios::transaction);
        run("consumer cancelled", Scenarios::cancelled);
        run("passive declarations", Scenarios::passive);
        run("remote calls", Scenarios::calls);
        run("direct replies", Scenarios::directReplies);
        run("a new secret", Scenarios::secret);
        System.exit(0);
    }

    static void run(String what, Scenario scenario) {
        try (Connection connection = factory.newConnection(what)) {
            scenario.run(connection.createChannel(), prefix + "-" + what.replace(' ', '-'));
            System.out.println("ok " + what);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.out.println("failed " + what + ": " + problem);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    static void same(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    static String declare(Channel channel, String name, Map<String, Object> arguments) throws Exception {
        return channel.queueDeclare(name, true, false, false, arguments).getQueue();
    }

    static String text(byte[] body) {
        return new String(body);
    }

    static List<String> numbers(int count) {
        List<String> made = new ArrayList<>();
        for (int number = 0; number < count; number++) made.add("" + number);
        return made;
    }

    static void publish(Channel channel, String exchange, String key, int count) throws Exception {
        for (String number : numbers(count)) {
            channel.basicPublish(exchange, key, MessageProperties.PERSISTENT_TEXT_PLAIN, number.getBytes());
        }
    }

    // Consumes `count` messages with acknowledgements.
    static List<String> take(Channel channel, String queue, int count) throws Exception {
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        String tag = channel.basicConsume(queue, false, (consumer, delivery) -> {
            arrived.add(text(delivery.getBody()));
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }, NO_CANCEL);
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            String body = arrived.poll(PATIENCE, TimeUnit.MILLISECONDS);
            check(body != null, "only " + found.size() + " of " + count + " messages came");
            found.add(body);
        }
        channel.basicCancel(tag);
        return found;
    }

    static void confirms(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        channel.confirmSelect();
        publish(channel, "", name, 500);
        channel.waitForConfirmsOrDie(PATIENCE);
        same(numbers(500), take(channel, name, 500));
    }

    static void asynchronousConfirms(Channel channel, String name) throws Exception {
        Map<String, Object> full = new HashMap<>();
        full.put("x-max-length", 10);
        full.put("x-overflow", "reject-publish");
        declare(channel, name, full);
        channel.confirmSelect();
        CountDownLatch answered = new CountDownLatch(20);
        AtomicInteger refused = new AtomicInteger();
        long[] last = {0, 0};
        channel.addConfirmListener((tag, multiple) -> count(answered, last, 0, tag, multiple), (tag, multiple) -> {
            refused.addAndGet(multiple ? (int) (tag - last[1]) : 1);
            count(answered, last, 1, tag, multiple);
        });
        for (int number = 0; number < 20; number++) {
            channel.basicPublish("", name, MessageProperties.PERSISTENT_BASIC, new byte[] {1});
            channel.waitForConfirms(PATIENCE);
        }
        check(answered.await(PATIENCE, TimeUnit.MILLISECONDS), "answers are missing");
        same(10, refused.get());
    }

    static void count(CountDownLatch answered, long[] last, int kind, long tag, boolean multiple) {
        long before = Math.max(last[0], last[1]);
        long count = multiple ? tag - before : 1;
        for (long one = 0; one < count; one++) answered.countDown();
        last[kind] = tag;
        last[1 - kind] = tag;
    }

    static void returns(Channel channel, String name) throws Exception {
        BlockingQueue<Return> returned = new LinkedBlockingQueue<>();
        channel.addReturnListener(returned::add);
        channel.confirmSelect();
        channel.basicPublish("", name, true, MessageProperties.TEXT_PLAIN, "nowhere".getBytes());
        check(channel.waitForConfirms(PATIENCE), "an unroutable message was refused");
        Return one = returned.poll(PATIENCE, TimeUnit.MILLISECONDS);
        same(312, one.getReplyCode());
        same("nowhere", text(one.getBody()));
    }

    static void headers(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        Map<String, Object> nested = new HashMap<>();
        nested.put("list", Arrays.asList(1, "two", true));
        Map<String, Object> sent = new HashMap<>();
        sent.put("int", 7);
        sent.put("long", 1L << 40);
        sent.put("short", (short) 7);
        sent.put("byte", (byte) -7);
        sent.put("float", 1.5f);
        sent.put("double", 2.5d);
        sent.put("true", true);
        sent.put("decimal", new BigDecimal("12.34"));
        sent.put("date", new Date(1_700_000_000_000L));
        sent.put("bytes", "raw".getBytes());
        sent.put("null", null);
        sent.put("nested", nested);
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
            .contentType("text/plain").contentEncoding("utf-8").headers(sent).deliveryMode(2).priority(4)
            .correlationId("c").replyTo("r").expiration("60000").messageId("m")
            .timestamp(new Date(1_700_000_000_000L)).type("t").userId("guest").appId("a").build();
        channel.basicPublish("", name, properties, "x".getBytes());
        GetResponse got = poll(channel, name);
        AMQP.BasicProperties found = got.getProps();
        for (Map.Entry<String, Object> entry : sent.entrySet()) {
            Object value = found.getHeaders().get(entry.getKey());
            if (entry.getValue() == null) check(found.getHeaders().containsKey("null") && value == null, "null");
            else if (value instanceof byte[]) same("raw", text((byte[]) value));
            else same(entry.getValue() instanceof String ? entry.getValue() : shown(entry.getValue()), shown(value));
        }
        same(properties.builder().headers(null).build().toString(), found.builder().headers(null).build().toString());
    }

    static String shown(Object value) {
        return value.getClass().getSimpleName().replace("ByteArrayLongString", "String") + " " + value;
    }

    static GetResponse poll(Channel channel, String queue) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (System.currentTimeMillis() < deadline) {
            GetResponse got = channel.basicGet(queue, true);
            if (got != null) return got;
            Thread.sleep(5);
        }
        throw new IllegalStateException("nothing in " + queue);
    }

    static void largeBodies(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        for (int size : new int[] {0, 1, 131_064, 131_065, 3_000_000}) {
            byte[] body = new byte[size];
            Arrays.fill(body, (byte) 206);
            channel.basicPublish("", name, MessageProperties.PERSISTENT_BASIC, body);
            check(Arrays.equals(body, poll(channel, name).getBody()), "a body of " + size + " bytes");
        }
    }

    static void prefetch(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        publish(channel, "", name, 30);
        channel.basicQos(10);
        List<Long> tags = Collections.synchronizedList(new ArrayList<>());
        List<String> again = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch ten = new CountDownLatch(10);
        CountDownLatch all = new CountDownLatch(30);
        AtomicInteger round = new AtomicInteger();
        channel.basicConsume(name, false, (consumer, delivery) -> {
            if (round.get() == 0) {
                tags.add(delivery.getEnvelope().getDeliveryTag());
                ten.countDown();
            } else {
                if (delivery.getEnvelope().isRedeliver()) again.add(text(delivery.getBody()));
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }
            all.countDown();
        }, NO_CANCEL);
        check(ten.await(PATIENCE, TimeUnit.MILLISECONDS), "ten messages did not come");
        channel.queueDeclarePassive(name);  // by now an eleventh would have come
        same(10, tags.size());
        round.set(1);
        channel.basicAck(tags.get(4), true);
        channel.basicNack(tags.get(9), true, true);
        check(all.await(PATIENCE, TimeUnit.MILLISECONDS), "the rest did not come");
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (again.size() < 5 && System.currentTimeMillis() < deadline) Thread.sleep(5);
        same(Arrays.asList("5", "6", "7", "8", "9"), new ArrayList<>(again));
    }

    static void deadLetters(Channel channel, String name) throws Exception {
        String dead = declare(channel, name + "-dead", null);
        Map<String, Object> arguments = new HashMap<>();
        arguments.put("x-dead-letter-exchange", "");
        arguments.put("x-dead-letter-routing-key", dead);
        arguments.put("x-message-ttl", 200);
        declare(channel, name, arguments);
        publish(channel, "", name, 1);
        GetResponse got = poll(channel, dead);
        Map<?, ?> death = (Map<?, ?>) ((List<?>) got.getProps().getHeaders().get("x-death")).get(0);
        same("expired", death.get("reason").toString());
        same(name, death.get("queue").toString());
        same(1L, death.get("count"));
    }

    static void exchanges(Channel channel, String name) throws Exception {
        String queue = declare(channel, name, null);
        channel.exchangeDeclare(name + "-unrouted", BuiltinExchangeType.FANOUT, true);
        channel.exchangeDeclare(name + "-to", "headers", true);
        channel.exchangeDeclare(
            name + "-from", BuiltinExchangeType.TOPIC, true, false,
            Collections.singletonMap("alternate-exchange", name + "-unrouted"));
        channel.exchangeBind(name + "-to", name + "-from", "a.#");
        Map<String, Object> any = new HashMap<>();
        any.put("x-match", "any");
        any.put("h", 1);
        any.put("g", "v");
        channel.queueBind(queue, name + "-to", "", any);
        channel.queueBind(queue, name + "-unrouted", "");
        AMQP.BasicProperties with = new AMQP.BasicProperties.Builder().headers(Map.of("h", 1)).build();
        channel.basicPublish(name + "-from", "a.b.c", with, "by headers".getBytes());
        channel.basicPublish(name + "-from", "a.b.c", null, "not".getBytes());
        channel.basicPublish(name + "-from", "b", null, "unrouted".getBytes());
        same(Arrays.asList("by headers", "unrouted"), take(channel, queue, 2));
        channel.queueUnbind(queue, name + "-to", "", any);
        channel.exchangeUnbind(name + "-to", name + "-from", "a.#");
        channel.exchangeDelete(name + "-from");
        same(0, channel.queueDelete(queue).getMessageCount());
    }

    static void quorum(Channel channel, String name) throws Exception {
        String dead = declare(channel, name + "-dead", null);
        Map<String, Object> arguments = new HashMap<>();
        arguments.put("x-queue-type", "quorum");
        arguments.put("x-delivery-limit", 2);
        arguments.put("x-dead-letter-exchange", "");
        arguments.put("x-dead-letter-routing-key", dead);
        declare(channel, name, arguments);
        channel.confirmSelect();
        publish(channel, "", name, 1);
        channel.waitForConfirmsOrDie(PATIENCE);
        List<Object> counts = Collections.synchronizedList(new ArrayList<>());
        channel.basicConsume(name, false, (consumer, delivery) -> {
            Map<String, Object> headers = delivery.getProperties().getHeaders();
            counts.add(headers == null ? "none" : String.valueOf(headers.get("x-delivery-count")));
            channel.basicReject(delivery.getEnvelope().getDeliveryTag(), true);
        }, NO_CANCEL);
        GetResponse got = poll(channel, dead);
        Map<?, ?> death = (Map<?, ?>) ((List<?>) got.getProps().getHeaders().get("x-death")).get(0);
        same("delivery_limit", death.get("reason").toString());
        same(3, counts.size());
        same("2", counts.get(2));
    }

    static void transaction(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        channel.txSelect();
        publish(channel, "", name, 3);
        channel.txRollback();
        publish(channel, "", name, 2);
        same(0, channel.queueDeclarePassive(name).getMessageCount());
        channel.txCommit();
        same(2, channel.queueDeclarePassive(name).getMessageCount());
    }

    static void cancelled(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        CountDownLatch told = new CountDownLatch(1);
        channel.basicConsume(name, true, (consumer, delivery) -> {}, tag -> told.countDown());
        channel.queueDelete(name);
        check(told.await(PATIENCE, TimeUnit.MILLISECONDS), "the consumer was not told of its queue's end");
    }

    static void passive(Channel channel, String name) throws Exception {
        try {
            channel.queueDeclarePassive(name);
            throw new IllegalStateException("a queue that is not there was found");
        } catch (java.io.IOException refused) {
            ShutdownSignalException why = (ShutdownSignalException) refused.getCause();
            same(404, ((AMQP.Channel.Close) why.getReason()).getReplyCode());
        }
        try {
            channel.queueDeclare();
            throw new IllegalStateException("the channel is still open");
        } catch (AlreadyClosedException expected) {
            check(channel.getConnection().isOpen(), "the connection was closed as well");
        }
    }

    static void calls(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        Connection serving = factory.newConnection();
        RpcServer server = new RpcServer(serving.createChannel(), name) {
            @Override
            public byte[] handleCall(byte[] body, AMQP.BasicProperties reply) {
                return (text(body) + text(body)).getBytes();
            }
        };
        Thread loop = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception ended) {
                // the connection was closed
            }
        });
        loop.setDaemon(true);
        loop.start();
        RpcClientParams params = new RpcClientParams().channel(channel).exchange("").routingKey(name)
            .timeout((int) PATIENCE);
        RpcClient client = new RpcClient(params);
        same("xx", client.stringCall("x"));
        client.close();
        server.terminateMainloop();
        serving.close();
    }

    static void directReplies(Channel channel, String name) throws Exception {
        declare(channel, name, null);
        Channel serving = channel.getConnection().createChannel();
        serving.basicConsume(name, true, (tag, delivery) -> serving.basicPublish(
            "", delivery.getProperties().getReplyTo(), null, delivery.getBody()), NO_CANCEL);
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        channel.basicConsume("amq.rabbitmq.reply-to", true, (tag, delivery) ->
            arrived.add(text(delivery.getBody())), NO_CANCEL);
        AMQP.BasicProperties asking = new AMQP.BasicProperties.Builder().replyTo("amq.rabbitmq.reply-to").build();
        channel.basicPublish("", name, asking, "asked".getBytes());
        same("asked", arrived.poll(PATIENCE, TimeUnit.MILLISECONDS));
    }

    // The client renews its credentials by itself: connection.update-secret.
    static void secret(Channel channel, String name) throws Exception {
        CountDownLatch renewed = new CountDownLatch(2);
        DefaultCredentialsRefreshService service = new DefaultCredentialsRefreshService.DefaultCredentialsRefreshServiceBuilder()
            .refreshDelayStrategy(remaining -> Duration.ofMillis(50))
            .approachingExpirationStrategy(remaining -> false).build();
        ConnectionFactory expiring = factory.clone();
        expiring.setCredentialsProvider(new DefaultCredentialsProvider(factory.getUsername(), factory.getPassword()) {
            @Override
            public Duration getTimeBeforeExpiration() {
                return Duration.ofSeconds(30);
            }

            @Override
            public void refresh() {
                renewed.countDown();
            }
        });
        expiring.setCredentialsRefreshService(service);
        try (Connection connection = expiring.newConnection()) {
            check(renewed.await(PATIENCE, TimeUnit.MILLISECONDS), "no secret was renewed");
            connection.createChannel().queueDeclare();
        }
        service.close();
    }

    static void recover() throws Exception {
        factory.setNetworkRecoveryInterval(200);
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        CountDownLatch back = new CountDownLatch(1);
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recovered) {
                back.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recovered) {}
        });
        channel.confirmSelect();
        declare(channel, prefix, null);
        String own = channel.queueDeclare().getQueue();
        channel.exchangeDeclare(prefix + "-e", "fanout", true);
        channel.queueBind(own, prefix + "-e", "");
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        channel.basicConsume(prefix, true, (tag, delivery) -> arrived.add(text(delivery.getBody())), NO_CANCEL);
        channel.basicConsume(own, true, (tag, delivery) -> arrived.add(text(delivery.getBody())), NO_CANCEL);
        System.out.println("ready");
        System.in.read();
        check(back.await(PATIENCE, TimeUnit.MILLISECONDS), "the connection did not recover");
        channel.basicPublish("", prefix, MessageProperties.PERSISTENT_BASIC, "to the durable queue".getBytes());
        System.out.println(arrived.poll(PATIENCE, TimeUnit.MILLISECONDS));
        channel.basicPublish(prefix + "-e", "", null, "to the exclusive queue".getBytes());
        System.out.println(arrived.poll(PATIENCE, TimeUnit.MILLISECONDS));
        connection.close();
    }
}
