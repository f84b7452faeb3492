import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Count BOOTSTRAP APPLICATION SOURCE TARGET COUNTS FOLDER GUARANTEE: a Kafka Streams application.
 *
 * <p>Copies SOURCE to TARGET, and counts the records by the last digit of their values, in a state store behind a
 * repartition topic; each new count goes to COUNTS.
 */
public final class Count {
    private Count() {}

    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, words[6]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("transaction.timeout.ms", "10000");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(words[2]);
        records.to(words[3]);
        records.map((key, value) -> KeyValue.pair(value.substring(value.length() - 1), value))
                .groupByKey()
                .count()
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(words[4], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(
                problem -> {
                    System.err.println("replaced a thread that ended by " + problem);
                    return StreamThreadExceptionResponse.REPLACE_THREAD;
                });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }
}
