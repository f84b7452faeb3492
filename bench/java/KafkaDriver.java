import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One topic of one partition; acks=all without lingering; each group commits asynchronously after every poll. */
final class KafkaDriver implements Driver {
    private static final Duration POLL = Duration.ofMillis(100);

    private final String bootstrap;
    private final String topic;
    private final AtomicLong commits = new AtomicLong();
    private final AtomicLong refused = new AtomicLong();
    private final KafkaProducer<byte[], byte[]> producer;
    private volatile boolean ended;

    KafkaDriver(String host, int port, String name) throws Exception {
        bootstrap = host + ":" + port;
        topic = name;
        Properties settings = settings();
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(topic);
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    @Override
    public void subscribe(int subscriptions, Arrivals arrivals) throws Exception {
        CountDownLatch ready = new CountDownLatch(subscriptions);
        for (int number = 0; number < subscriptions; number++) {
            int subscription = number;
            Thread reader = new Thread(() -> read(subscription, arrivals, ready), "subscription-" + number);
            reader.setDaemon(true);
            reader.start();
        }
        ready.await();
    }

    private void read(int subscription, Arrivals arrivals, CountDownLatch ready) {
        Properties settings = settings();
        settings.put("group.id", topic + "-" + subscription);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.partition.fetch.bytes", "10485760");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(Set.of(topic));
        while (consumer.assignment().isEmpty()) {
            consumer.poll(POLL);
        }
        ready.countDown();
        while (!ended) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                arrivals.arrived(subscription, record.value());
                offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            if (!offsets.isEmpty()) {
                consumer.commitAsync(offsets, (what, error) -> (error == null ? commits : refused).incrementAndGet());
            }
        }
        consumer.close();
    }

    @Override
    public void publish(byte[] payload, Answer answer) {
        producer.send(new ProducerRecord<>(topic, payload), (where, error) -> answer.answered(error));
    }

    @Override
    public long[] commits() {
        return new long[] {commits.get(), refused.get()};
    }

    @Override
    public void close() {
        ended = true;
        producer.close();
    }
}
