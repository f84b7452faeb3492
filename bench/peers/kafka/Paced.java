import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Paced BOOTSTRAP TOPIC RATE SIZE SECONDS WARM_UP GROUPS: one producer at a fixed rate, one consumer for each of GROUPS
 * groups, in one virtual machine with one clock.
 *
 * <p>The producer has the client's defaults and does not linger. It is an open loop: record i is due at start + i / RATE, and
 * carries that time. Both latencies count from there, so that a producer that has to wait omits nothing. Records that are due
 * in the first WARM_UP seconds are sent and not counted. It prints one line of JSON: records counted, records a second, and
 * p50, p99 and p99.9 in ms of the acknowledgements and of the arrivals at all consumers. It fails where a record is missing or
 * comes twice.
 */
public final class Paced {
    private static final double[] QUANTILES = {0.5, 0.99, 0.999};

    /** Latencies, in hundredths of a millisecond. */
    private static final class Histogram {
        private final int[] counts = new int[3_000_000];
        private long total;

        void add(long nanoseconds) {
            counts[(int) Math.min(Math.max(nanoseconds / 10_000, 0), counts.length - 1)]++;
            total++;
        }

        void add(Histogram other) {
            for (int at = 0; at < counts.length; at++) {
                counts[at] += other.counts[at];
            }
            total += other.total;
        }

        String json() {
            List<String> found = new ArrayList<>();
            for (double quantile : QUANTILES) {
                long seen = 0;
                int at = 0;
                while (at < counts.length - 1 && (seen += counts[at]) < quantile * total) {
                    at++;
                }
                found.add(String.format("%.2f", at / 100.0));
            }
            return found.toString();
        }
    }

    /** One member of a group of its own, until it has seen all records. */
    private static final class Reader extends Thread {
        final Histogram latencies = new Histogram();
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final CountDownLatch ready;
        private final long records;
        private final long counted;

        Reader(String bootstrap, String topic, int number, CountDownLatch ready, long records, long counted) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", topic + "-group-" + number);
            settings.put("auto.offset.reset", "earliest");
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(Set.of(topic));
            this.ready = ready;
            this.records = records;
            this.counted = counted;
        }

        @Override
        public void run() {
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(100));
            }
            ready.countDown();
            long next = 0;
            while (next < records) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    ByteBuffer value = ByteBuffer.wrap(record.value());
                    long due = value.getLong();
                    if (value.getLong() != next) {
                        throw new IllegalStateException("record " + next + " is missing, or came twice");
                    }
                    if (next++ >= records - counted) {
                        latencies.add(System.nanoTime() - due);
                    }
                }
            }
            consumer.close();
        }
    }

    public static void main(String[] words) throws Exception {
        String bootstrap = words[0];
        String topic = words[1];
        double rate = Double.parseDouble(words[2]);
        int size = Integer.parseInt(words[3]);
        long counted = (long) (rate * Double.parseDouble(words[4]));
        long records = counted + (long) (rate * Double.parseDouble(words[5]));
        int groups = Integer.parseInt(words[6]);

        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(groups);
        List<Reader> readers = new ArrayList<>();
        for (int number = 0; number < groups; number++) {
            Reader reader = new Reader(bootstrap, topic, number, ready, records, counted);
            reader.setUncaughtExceptionHandler((thread, error) -> fail(error));
            reader.start();
            readers.add(reader);
        }
        ready.await();

        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("linger.ms", "0");
        Histogram acknowledged = new Histogram();
        long start;
        double reached;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            start = System.nanoTime();
            for (long number = 0; number < records; number++) {
                long due = start + (long) (number * 1e9 / rate);
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                byte[] value = new byte[size];
                ByteBuffer.wrap(value).putLong(due).putLong(number);
                boolean counts = number >= records - counted;
                producer.send(new ProducerRecord<>(topic, value), (where, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else if (counts) {
                        acknowledged.add(System.nanoTime() - due);
                    }
                });
            }
            producer.flush();
            reached = records * 1e9 / (System.nanoTime() - start);
        }
        if (failure.get() != null) {
            fail(failure.get());
        }
        Histogram arrived = new Histogram();
        for (Reader reader : readers) {
            reader.join();
            arrived.add(reader.latencies);
        }
        System.out.printf(
                "{\"records\": %d, \"rate\": %.1f, \"ack\": %s, \"arrival\": %s}%n",
                records, reached, acknowledged.json(), arrived.json());
    }

    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }
}
