import com.sun.xml.ws.client.ClientTransportException;
import com.sun.xml.ws.developer.SchemaValidationFeature;
import java.util.regex.Pattern;
import xroute.*;

/** The part of the client that depends on Metro. */
final class Toolkit {
  private static final Pattern STATUS = Pattern.compile("status code (\\d+)");

  private Toolkit() {}

  /** Returns a port that validates requests and responses against the schemas. */
  static XRouteWS port(XRouteWSService service) {
    return service.getXRouteWSPort(new SchemaValidationFeature());
  }

  /** Returns the HTTP status that caused the exception, or 0. With Metro, it is only in the message. */
  static int status(Throwable raised) {
    var status = STATUS.matcher(String.valueOf(raised.getMessage()));
    return raised instanceof ClientTransportException && status.find() ? Integer.parseInt(status.group(1)) : 0;
  }
}
