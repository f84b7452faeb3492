import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Asks MirrorMaker 2's client library at a cluster: BOOTSTRAP SOURCE GROUP. */
class Translated {
  public static void main(String[] given) throws Exception {
    Map<String, Object> at = Map.of("bootstrap.servers", given[0]);
    System.out.println("upstream " + RemoteClusterUtils.upstreamClusters(at));
    System.out.println("hops " + RemoteClusterUtils.replicationHops(at, given[1]));
    RemoteClusterUtils.translateOffsets(at, given[1], given[2], Duration.ofSeconds(20))
        .forEach((place, offset) -> System.out.println(place + " " + offset.offset()));
  }
}
