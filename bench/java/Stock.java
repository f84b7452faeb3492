import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.Recorder;

/**
 * Stock DRIVER HOST PORT NAME RATE SIZE SECONDS WARM_UP SUBSCRIPTIONS: one producer at a constant rate, and
 * subscriptions that each get every message, in one virtual machine with one clock. DRIVER names its class.
 *
 * <p>It is an open loop: message i is due at start + i / RATE, and carries that time. Latencies count from there, so that
 * a producer that has to wait omits nothing; how late the producer itself was is recorded apart. Messages that are due in
 * the first WARM_UP seconds are sent and not counted. It prints "measuring" when the counted ones begin, and at the end a
 * line of JSON: messages counted, messages a second acknowledged and received, p50, p99 and p99.9 in ms, commits. It fails
 * where a message is refused, is missing or comes twice.
 */
public final class Stock {
    private static final double[] PERCENTILES = {50, 99, 99.9};
    private static final long LONGEST = TimeUnit.MINUTES.toNanos(10);
    private static final long LAST_WAIT = 60; // seconds, for answers and arrivals after the last message
    private static final int HEADER = 2 * Long.BYTES;

    /** The latencies of one kind, recorded from any thread, and when the last of them came. */
    private static final class Latencies {
        private final Recorder recorder = new Recorder(LONGEST, 4);
        private final AtomicLong last = new AtomicLong();

        void add(long due) {
            long now = System.nanoTime();
            recorder.recordValue(Math.min(Math.max(now - due, 0), LONGEST));
            last.accumulateAndGet(now, Math::max);
        }

        double rate(long start, long messages) {
            return messages * 1e9 / (last.get() - start);
        }

        String json() {
            Histogram found = recorder.getIntervalHistogram();
            StringBuilder text = new StringBuilder("[");
            for (double percentile : PERCENTILES) {
                text.append(text.length() > 1 ? ", " : "");
                text.append(String.format("%.4f", found.getValueAtPercentile(percentile) / 1e6));
            }
            return text.append("]").toString();
        }
    }

    private final Latencies acknowledged = new Latencies();
    private final Latencies arrived = new Latencies();
    private final Latencies late = new Latencies();
    private final double rate;
    private final int size;
    private final long uncounted;
    private final long messages;
    private final CountDownLatch answers;
    private final CountDownLatch received;
    private final long[] next; // of each subscription; only its own thread touches it
    private long start;

    private Stock(double rate, int size, double seconds, double warmUp, int subscriptions) {
        this.rate = rate;
        this.size = Math.max(size, HEADER);
        uncounted = (long) (rate * warmUp);
        messages = uncounted + (long) (rate * seconds);
        answers = new CountDownLatch(1);
        received = new CountDownLatch(subscriptions);
        next = new long[subscriptions * 16]; // apart, so that threads do not share cache lines
    }

    private void arrived(int subscription, byte[] payload) {
        ByteBuffer header = ByteBuffer.wrap(payload);
        long due = header.getLong();
        long number = header.getLong();
        long awaited = next[subscription * 16]++;
        if (number != awaited) {
            fail(new IllegalStateException("got message " + number + " for " + awaited + ": missing, or twice"));
        }
        if (number >= uncounted) {
            arrived.add(due);
        }
        if (number == messages - 1) {
            received.countDown();
        }
    }

    private void run(Driver driver) throws Exception {
        AtomicLong unanswered = new AtomicLong(messages);
        start = System.nanoTime();
        for (long number = 0; number < messages; number++) {
            long due = start + (long) (number * 1e9 / rate);
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            boolean counts = number >= uncounted;
            if (number == uncounted) {
                System.out.println("measuring");
            }
            if (counts) {
                late.add(due);
            }
            byte[] payload = new byte[size];
            ByteBuffer.wrap(payload).putLong(due).putLong(number);
            driver.publish(payload, error -> answered(due, counts, error, unanswered));
        }
        await(answers, "answers");
        await(received, "arrivals");
    }

    private void answered(long due, boolean counts, Throwable error, AtomicLong unanswered) {
        if (error != null) {
            fail(error);
        }
        if (counts) {
            acknowledged.add(due);
        }
        if (unanswered.decrementAndGet() == 0) {
            answers.countDown();
        }
    }

    private static void await(CountDownLatch latch, String what) throws InterruptedException {
        if (!latch.await(LAST_WAIT, TimeUnit.SECONDS)) {
            fail(new IllegalStateException(LAST_WAIT + " s after the last message there are " + what + " missing"));
        }
    }

    private String report(Driver driver) {
        long counted = messages - uncounted;
        long from = start + (long) (uncounted * 1e9 / rate);
        long[] commits = driver.commits();
        return String.format(
                "{\"messages\": %d, \"acknowledged\": %.1f, \"received\": %.1f, \"ack\": %s, \"arrival\": %s, \"late\": %s,"
                        + " \"commits\": %d, \"refused commits\": %d}",
                counted, acknowledged.rate(from, counted), arrived.rate(from, counted), acknowledged.json(),
                arrived.json(), late.json(), commits[0], commits[1]);
    }

    public static void main(String[] words) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> fail(error));
        int subscriptions = Integer.parseInt(words[8]);
        Stock load = new Stock(
                Double.parseDouble(words[4]), Integer.parseInt(words[5]), Double.parseDouble(words[6]),
                Double.parseDouble(words[7]), subscriptions);
        // By name: each driver is compiled with its own library alone.
        Constructor<?> driving = Class.forName(words[0]).getDeclaredConstructor(String.class, int.class, String.class);
        driving.setAccessible(true);
        try (Driver driver = (Driver) driving.newInstance(words[1], Integer.parseInt(words[2]), words[3])) {
            driver.subscribe(subscriptions, load::arrived);
            load.run(driver);
            System.out.println(load.report(driver));
        }
        System.exit(0); // libraries leave threads behind
    }

    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }
}
