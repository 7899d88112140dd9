import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import trafficd.v1.Forecast.ForecastPeriod;
import trafficd.v1.Forecast.StreetForecastResponse;

/** Reads the street forecast layer as Layer.java FILE, and writes a line of JSON for each street. */
class Layer {
  public static void main(String[] args) throws Exception {
    var message = Files.readAllBytes(Path.of(args[0]));
    for (var s : StreetForecastResponse.parseFrom(message).getStreetForecastList()) {
      var periods = s.getForecastList().stream().map(Layer::json).collect(Collectors.joining(", "));
      System.out.printf(
          "{\"street\": %d, \"fromnode\": %d, \"openLRcode\": \"%s\", \"forecast\": [%s]}%n",
          s.getStreet(), s.getFromnode(), s.getOpenLRcode(), periods);
    }
  }

  static String json(ForecastPeriod p) {
    return String.format(
        "{\"start\": \"%s\", \"end\": \"%s\", \"flow_valid\": %b, \"speed_valid\": %b, \"speed\": %s,"
            + " \"flow\": %s, \"timezone\": \"%s\"}",
        p.getStart(), p.getEnd(), p.getFlowValid(), p.getSpeedValid(), p.getSpeed(), p.getFlow(), p.getTimezone());
  }
}
