import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.handler.MessageContext;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import xroute.*;

/** Makes the calls on standard input with a JAX-WS toolkit. toolkit_client_test.go defines the lines. */
final class Client {
  private final XRouteWS port;

  private Client(String wsdl) throws Exception {
    port = Toolkit.port(new XRouteWSService(URI.create(wsdl).toURL()));
  }

  public static void main(String[] args) throws Exception {
    var client = new Client(args[0]);
    var json = new ObjectMapper().setDefaultPropertyInclusion(JsonInclude.Include.NON_NULL);
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(json.writeValueAsString(client.handle(json.readTree(line))));
    }
  }

  private Map<String, ?> handle(JsonNode line) {
    try {
      return call(line);
    } catch (XServiceException_Exception e) {
      return fault(e, e.getFaultInfo());
    } catch (ParameterNotSetException_Exception e) {
      return fault(e, e.getFaultInfo());
    } catch (IllegalParameterException_Exception e) {
      return fault(e, e.getFaultInfo());
    } catch (UnexpectedException_Exception e) {
      return fault(e, e.getFaultInfo());
    } catch (Exception e) {
      return refused(e);
    }
  }

  private Map<String, ?> call(JsonNode line) throws Exception {
    var context = line.has("properties") ? context(line.get("properties")) : null;
    var id = text(line, "id");
    return switch (line.get("call").asText()) {
      case "authorize" -> authorize(text(line, "password"), text(line, "header"));
      case "convertGeometry" -> Map.of("geometry",
          Seen.geometry(port.convertGeometry(Make.geometry(line.get("geometry")), options(line.get("options")), context)));
      case "startConvertGeometries" -> job(port.startConvertGeometries(geometries(line.get("geometries")), options(line.get("options")), context));
      case "fetchConvertGeometries" -> fetched(port.fetchConvertGeometries(id, context));
      case "watchJob" -> job(port.watchJob(id, watch(line.get("watch")), context));
      case "stopJob" -> job(port.stopJob(id, context));
      case "deleteJob" -> job(port.deleteJob(id, context));
      default -> throw new IllegalArgumentException(line.toString());
    };
  }

  private Map<String, ?> authorize(String password, String header) {
    var request = ((BindingProvider) port).getRequestContext();
    request.remove(BindingProvider.USERNAME_PROPERTY);
    request.remove(BindingProvider.PASSWORD_PROPERTY);
    request.remove(MessageContext.HTTP_REQUEST_HEADERS);
    if (password != null) {
      request.put(BindingProvider.USERNAME_PROPERTY, "anyone");
      request.put(BindingProvider.PASSWORD_PROPERTY, password);
    }
    if (header != null) {
      request.put(MessageContext.HTTP_REQUEST_HEADERS, Map.of("Authorization", List.of(header)));
    }
    return Map.of();
  }

  private static RequestOptions options(JsonNode o) {
    var options = new RequestOptions();
    options.setWrappedResponseGeometry(new ArrayOfGeometryEncoding());
    o.get("encodings").forEach(e -> options.getWrappedResponseGeometry().getGeometryEncoding().add(GeometryEncoding.fromValue(e.asText())));
    options.setCoordFormat(CoordFormat.fromValue(o.get("coordFormat").asText()));
    options.setSrId(text(o, "srId"));
    return options;
  }

  private static CallerContext context(JsonNode properties) {
    var context = new CallerContext();
    context.setWrappedProperties(new ArrayOfCallerContextProperty());
    properties.properties().forEach(p -> {
      var property = new CallerContextProperty();
      property.setKey(p.getKey());
      property.setValue(p.getValue().asText());
      context.getWrappedProperties().getCallerContextProperty().add(property);
    });
    return context;
  }

  private static WatchOptions watch(JsonNode w) {
    if (w == null) {
      return null;
    }
    var options = new WatchOptions();
    options.setMaximumPollingPeriod(w.get("maximumPollingPeriod").asInt());
    options.setProgressUpdatePeriod(w.get("progressUpdatePeriod").asInt());
    return options;
  }

  private static ArrayOfEncodedGeometry geometries(JsonNode list) {
    var array = new ArrayOfEncodedGeometry();
    list.forEach(g -> array.getEncodedGeometry().add(Make.geometry(g)));
    return array;
  }

  private static Map<String, ?> fetched(ConvertedGeometries result) {
    var seen = new TreeMap<String, Object>(job(result.getJob()));
    if (result.getWrappedGeometries() != null) {
      seen.put("geometries", result.getWrappedGeometries().getEncodedGeometry().stream().map(Seen::geometry).toList());
    }
    if (result.getWrappedFailures() != null) {
      seen.put("failures", result.getWrappedFailures().getConversionFailure().stream()
          .map(f -> Map.of("index", f.getIndex(), "exception", Seen.exception(f.getException()))).toList());
    }
    return seen;
  }

  private static Map<String, ?> job(Job job) {
    var seen = new TreeMap<String, Object>(Map.of("status", job.getStatus().value(), "elapsedTime", job.getElapsedTime()));
    seen.put("id", job.getId());
    if (job.getProgress() instanceof BulkProgress p) {
      seen.put("progress",
          Map.of("type", "BulkProgress", "failed", p.getFailed(), "remaining", p.getRemaining(), "successful", p.getSuccessful()));
    }
    return Map.of("job", seen);
  }

  private static Map<String, ?> fault(Exception raised, BaseException exception) {
    var seen = Seen.exception(exception);
    seen.put("string", raised.getMessage());
    return Map.of("fault", seen);
  }

  /** The HTTP status of a response without an envelope, or the message of any other error. */
  private static Map<String, ?> refused(Exception e) {
    for (Throwable cause = e; cause != null; cause = cause.getCause()) {
      if (Toolkit.status(cause) != 0) {
        return Map.of("status", Toolkit.status(cause));
      }
    }
    return Map.of("error", String.valueOf(e));
  }

  static String text(JsonNode parent, String member) {
    return parent.has(member) ? parent.get(member).asText() : null;
  }
}
