import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client behind a line protocol, so that one virtual machine serves a whole test run.
 *
 * <p>A command is one line of words on standard input; its answer is any number of lines and then "ok", or
 * "error" with the exception. Bytes are base64, null is "-", empty is "=".
 */
public final class Probe {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private Probe(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Probe probe = new Probe(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ok");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                probe.run(line.trim().split(" "));
                System.out.println("ok");
            } catch (Exception e) {
                Throwable cause = e.getCause() != null ? e.getCause() : e;
                System.out.println("error " + cause.getClass().getSimpleName() + " " + cause.getMessage());
            }
            System.out.flush();
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "write" -> write(words[1], Integer.parseInt(words[2]), words[3], words);
            case "read" -> read(words[1], words[2]);
            case "offsets" -> offsets(words[1], Long.parseLong(words[2]));
            case "share" -> share(words[1], words[2]);
            case "transform" -> transform(words[1], words[2], words[3], words[4], Integer.parseInt(words[5]));
            case "begin" -> begin(words[1], words[2], words[3]);
            case "end" -> end(words[1], words[2]);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private KafkaProducer<byte[], byte[]> producer(String compression, String transactionalId) {
        Properties settings = common();
        settings.put("compression.type", compression);
        settings.put("linger.ms", "20");
        if (!transactionalId.equals("-")) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String isolation) {
        Properties settings = common();
        if (!group.equals("-")) {
            settings.put("group.id", group);
        }
        settings.put("group.protocol", "classic");
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("heartbeat.interval.ms", "200");
        settings.put("max.poll.records", "20");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static byte[] bytes(String word) {
        return switch (word) {
            case "-" -> null;
            case "=" -> new byte[0];
            default -> Base64.getDecoder().decode(word);
        };
    }

    private static String word(byte[] bytes) {
        return bytes == null ? "-" : bytes.length == 0 ? "=" : Base64.getEncoder().encodeToString(bytes);
    }

    /** write TOPIC PARTITION COMPRESSION RECORD...; a record is KEY,VALUE,NAME,VALUE,NAME,VALUE... */
    private void write(String topic, int partition, String compression, String[] words) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(compression, "-")) {
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 4; i < words.length; i++) {
                String[] parts = words[i].split(",");
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, partition, bytes(parts[0]), bytes(parts[1]));
                for (int h = 2; h < parts.length; h += 2) {
                    record.headers().add(new String(bytes(parts[h]), StandardCharsets.UTF_8), bytes(parts[h + 1]));
                }
                sent.add(producer.send(record));
            }
            for (java.util.concurrent.Future<RecordMetadata> one : sent) {
                System.out.println(one.get().offset());
            }
        }
    }

    /** read TOPIC ISOLATION: every record as PARTITION OFFSET KEY,VALUE,NAME,VALUE... */
    private void read(String topic, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("-", isolation)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(info -> all.add(new TopicPartition(topic, info.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    StringBuilder line = new StringBuilder();
                    line.append(record.partition()).append(' ').append(record.offset()).append(' ');
                    line.append(word(record.key())).append(',').append(word(record.value()));
                    for (Header header : record.headers()) {
                        line.append(',').append(word(header.key().getBytes(StandardCharsets.UTF_8)));
                        line.append(',').append(word(header.value()));
                    }
                    System.out.println(line);
                }
            }
        }
    }

    /** offsets TOPIC TIMESTAMP: earliest, latest, and the first at or after the timestamp, of partition 0. */
    private void offsets(String topic, long timestamp) throws Exception {
        try (Admin admin = Admin.create(common())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            for (OffsetSpec spec :
                    List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.forTimestamp(timestamp))) {
                System.out.println(admin.listOffsets(Map.of(partition, spec)).all().get().get(partition).offset());
            }
        }
    }

    /** share TOPIC GROUP: two members share four partitions, one leaves, the other has all. */
    private void share(String topic, String group) {
        TreeMap<String, Integer> events = new TreeMap<>();
        KafkaConsumer<byte[], byte[]> first = consumer(group, "read_uncommitted");
        try (KafkaConsumer<byte[], byte[]> second = consumer(group, "read_uncommitted")) {
            first.subscribe(Set.of(topic));
            second.subscribe(
                    Set.of(topic),
                    new ConsumerRebalanceListener() {
                        @Override
                        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

                        @Override
                        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                            events.merge("assigned", 1, Integer::sum);
                        }
                    });
            while (first.assignment().size() != 2 || second.assignment().size() != 2) {
                first.poll(Duration.ofMillis(50));
                second.poll(Duration.ofMillis(50));
            }
            System.out.println(first.assignment().size() + " " + second.assignment().size());
            first.close();
            while (second.assignment().size() != 4) {
                second.poll(Duration.ofMillis(50));
            }
            System.out.println(second.assignment().size() + " " + (events.get("assigned") >= 2));
        }
    }

    /** transform SOURCE TARGET GROUP ID COUNT: consume, transform, produce; every third transaction is aborted. */
    private void transform(String source, String target, String group, String id, int count) {
        try (KafkaProducer<byte[], byte[]> producer = producer("lz4", id);
                KafkaConsumer<byte[], byte[]> consumer = consumer(group, "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(Set.of(source));
            int done = 0;
            for (int attempt = 0; done < count; attempt++) {
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                Map<TopicPartition, Long> first = new HashMap<>();
                List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    first.putIfAbsent(partition, record.offset());
                    next.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    out.add(new ProducerRecord<>(target, record.key(), record.value()));
                }
                if (out.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                out.forEach(producer::send);
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                producer.flush(); // otherwise an abort would drop unsent records
                if (attempt % 3 == 2) {
                    producer.abortTransaction();
                    first.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                    done += out.size();
                }
            }
            System.out.println(done);
        }
    }

    /** begin ID TOPIC VALUE: a transaction with one record, left open until "end". */
    private void begin(String id, String topic, String value) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer("none", id);
        KafkaProducer<byte[], byte[]> old = producers.put(id, producer);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, null, bytes(value))).get();
        if (old != null) {
            try {
                old.commitTransaction();
                System.out.println("not fenced");
            } catch (ProducerFencedException e) {
                System.out.println("fenced");
            }
            old.close(Duration.ZERO);
        }
    }

    /** end ID commit|abort. */
    private void end(String id, String how) {
        try (KafkaProducer<byte[], byte[]> producer = producers.remove(id)) {
            if (how.equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }
}
