import jakarta.xml.ws.BindingProvider;
import org.apache.cxf.message.Message;
import org.apache.cxf.transport.http.HTTPException;
import xroute.*;

/** The part of the client that depends on Apache CXF. */
final class Toolkit {
  private Toolkit() {}

  /** Returns a port that validates requests and responses against the schemas. */
  static XRouteWS port(XRouteWSService service) {
    var port = service.getXRouteWSPort();
    ((BindingProvider) port).getRequestContext().put(Message.SCHEMA_VALIDATION_ENABLED, "BOTH");
    return port;
  }

  /** Returns the HTTP status that caused the exception, or 0. */
  static int status(Throwable raised) {
    return raised instanceof HTTPException http ? http.getResponseCode() : 0;
  }
}
