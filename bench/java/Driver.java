/** One stock client library: what a load needs of it. */
interface Driver extends AutoCloseable {
    /** Told of each payload that a subscription receives, by one thread for each subscription. */
    interface Arrivals {
        void arrived(int subscription, byte[] payload);
    }

    /** Told once of each publish: null once the server has acknowledged it, else the reason why not. */
    interface Answer {
        void answered(Throwable error);
    }

    /** Creates the destination and so many subscriptions of all that it gets. Returns once all of them receive. */
    void subscribe(int subscriptions, Arrivals arrivals) throws Exception;

    /** Sends one message. May wait where the library's own buffers are full. */
    void publish(byte[] payload, Answer answer) throws Exception;

    /** How often its consumers have committed what they have read, and how many of these were refused. */
    default long[] commits() {
        return new long[] {0, 0};
    }
}
