import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Migrate BOOTSTRAP TOPIC PARTITIONS GROUP ASSIGNOR: replaces three classic consumers of a group by consumers of
 * the new protocol, one by one, and then these by classic ones, while records arrive.
 *
 * <p>Prints, after the word "result", the group's type after each direction, then the numbers of records sent, records
 * read, repeated reads, and lost partitions. The last item is the assignment of a subscription by a pattern.
 */
public final class Migrate {
    private static final int TEAM = 3;
    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final String group;
    private final String assignor;
    private final Map<String, Integer> read = new HashMap<>();
    private final List<Member> team = new ArrayList<>();
    private final KafkaProducer<byte[], byte[]> producer;
    private long sent = 0;
    private int lost = 0;

    private Migrate(String[] words) {
        bootstrap = words[0];
        topic = words[1];
        partitions = Integer.parseInt(words[2]);
        group = words[3];
        assignor = words[4];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] words) throws Exception {
        new Migrate(words).run();
    }

    private final class Member implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();

        Member(boolean classic) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("max.poll.records", "20");
            if (classic) {
                settings.put("group.protocol", "classic");
                settings.put("heartbeat.interval.ms", "200");
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
            } else {
                settings.put("group.protocol", "consumer");
            }
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(Set.of(topic), this);
        }

        /** Returns whether what was read could be committed, which a classic member cannot do while it joins. */
        boolean poll() {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(20))) {
                read.merge(record.partition() + ":" + record.offset(), 1, Integer::sum);
                done.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            try {
                if (!done.isEmpty()) {
                    consumer.commitSync(done);
                }
                return !done.isEmpty();
            } catch (CommitFailedException | RebalanceInProgressException e) {
                return false; // committed when the partitions are revoked
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            Map<TopicPartition, OffsetAndMetadata> last = new HashMap<>(done);
            last.keySet().retainAll(gone);
            if (!last.isEmpty()) {
                consumer.commitSync(last);
            }
            done.keySet().removeAll(gone);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> gone) {
            lost++;
            done.keySet().removeAll(gone);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> more) {}
    }

    private void step() {
        for (int number = 0; number < 2 * partitions; number++) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, new byte[] {1}));
            sent++;
        }
        for (Member member : team) {
            member.poll();
        }
    }

    private boolean shared() {
        Set<TopicPartition> held = new HashSet<>();
        int total = 0;
        int least = partitions;
        int most = 0;
        for (Member member : team) {
            Set<TopicPartition> assigned = member.consumer.assignment();
            held.addAll(assigned);
            total += assigned.size();
            least = Math.min(least, assigned.size());
            most = Math.max(most, assigned.size());
        }
        return total == partitions && held.size() == partitions && most - least <= 1;
    }

    private void settle() {
        long before = read.size();
        while (!shared() || read.size() < before + 5L * partitions) {
            step();
        }
    }

    private void replace(boolean classic) {
        for (Member former : List.copyOf(team)) {
            team.add(new Member(classic));
            settle();
            // A classic consumer that is closed while it joins calls its partitions lost, whatever the server
            // answers.
            while (!former.poll()) {
                step();
            }
            team.remove(former);
            former.consumer.close();
            settle();
        }
    }

    private void run() throws Exception {
        for (int number = 0; number < TEAM; number++) {
            team.add(new Member(true));
        }
        settle();
        replace(false);
        System.out.println("result " + type());
        replace(true);
        System.out.println("result " + type());
        producer.flush();
        long total = sent;
        while (read.size() < total) {
            for (Member member : team) {
                member.poll();
            }
        }
        long twice = read.values().stream().filter(times -> times > 1).count();
        System.out.println("result " + total + " " + read.size() + " " + twice + " " + lost);
        for (Member member : team) {
            member.consumer.close();
        }
        System.out.println("result " + byPattern());
        producer.close();
    }

    private String type() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var described = admin.describeConsumerGroups(Set.of(group)).describedGroups().get(group).get();
            return described.type() + " " + described.groupState() + " " + described.members().size();
        }
    }

    private int byPattern() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group + "-pattern");
        settings.put("group.protocol", "consumer");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(Pattern.quote(topic) + ".{0,3}"));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(50));
            }
            return consumer.assignment().size();
        }
    }
}
