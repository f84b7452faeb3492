import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copier BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID: copies one topic into another, exactly once.
 *
 * <p>A member of the new group protocol (KIP-848). Each output value is its source record's position, PARTITION:OFFSET.
 * It prints "copied N" after each transaction, and exits with code 3 if it was fenced or removed from the group.
 */
public final class Copier {
    private static final int FENCED = 3;
    private final String target;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<String, String> producer;

    private Copier(String bootstrap, String source, String target, String group, String transactionalId) {
        this.target = target;
        Properties written = new Properties();
        written.put("bootstrap.servers", bootstrap);
        written.put("transactional.id", transactionalId);
        written.put("transaction.timeout.ms", "5000");
        producer = new KafkaProducer<>(written, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        Properties read = new Properties();
        read.put("bootstrap.servers", bootstrap);
        read.put("group.id", group);
        read.put("group.protocol", "consumer");
        read.put("enable.auto.commit", "false");
        read.put("isolation.level", "read_committed");
        read.put("auto.offset.reset", "earliest");
        read.put("max.poll.records", "50");
        consumer = new KafkaConsumer<>(read, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(Set.of(source));
    }

    public static void main(String[] words) {
        try {
            Copier copier = new Copier(words[0], words[1], words[2], words[3], words[4]);
            while (true) {
                ConsumerRecords<byte[], byte[]> records = copier.consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copier.copy(records);
                }
            }
        } catch (ProducerFencedException
                | OutOfOrderSequenceException
                | AuthorizationException
                | FencedInstanceIdException
                | UnknownMemberIdException e) { // the last comes from a look-up of commits after a return
            System.out.println("ended " + e);
            System.exit(FENCED);
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String from = record.partition() + ":" + record.offset();
                producer.send(new ProducerRecord<>(target, record.partition(), null, from));
                ends.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            producer.commitTransaction();
            System.out.println("copied " + records.count());
        } catch (ProducerFencedException
                | OutOfOrderSequenceException
                | AuthorizationException
                | FencedInstanceIdException e) {
            throw e;
        } catch (KafkaException e) {
            System.out.println("aborted " + e);
            producer.abortTransaction();
            rewind();
        }
    }

    /** Returns to the group's committed offsets. */
    private void rewind() {
        consumer.committed(consumer.assignment()).forEach((partition, committed) -> {
            long offset = committed == null ? 0 : committed.offset();
            consumer.seek(partition, offset);
        });
    }
}
