import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import xroute.*;

/** Converts the members of the lines to objects of the generated classes. */
final class Make {
  private Make() {}

  static EncodedGeometry geometry(JsonNode g) {
    var geometry = bare(g.get("type").asText(), g.get("plain"));
    geometry.setWkt(Client.text(g, "wkt"));
    if (g.has("wkb")) {
      geometry.setWkb(bytes(g.get("wkb")));
    }
    if (g.has("kml")) {
      geometry.setKml(kml(g.get("kml")));
    }
    return geometry;
  }

  private static EncodedGeometry bare(String type, JsonNode p) {
    switch (type) {
      case "Point" -> {
        var g = new Point();
        g.setPoint((PlainPoint) plain(p));
        return g;
      }
      case "LineString" -> {
        var g = new LineString();
        g.setLineString((PlainLineString) plain(p));
        return g;
      }
      case "LinearRing" -> {
        var g = new LinearRing();
        g.setLinearRing((PlainLinearRing) plain(p));
        return g;
      }
      case "Polygon" -> {
        var g = new Polygon();
        g.setPolygon((PlainPolygon) plain(p));
        return g;
      }
      case "MultiPoint" -> {
        var g = new MultiPoint();
        g.setMultiPoint((PlainMultiPoint) plain(p));
        return g;
      }
      case "MultiLineString" -> {
        var g = new MultiLineString();
        g.setMultiLineString((PlainMultiLineString) plain(p));
        return g;
      }
      case "MultiPolygon" -> {
        var g = new MultiPolygon();
        g.setMultiPolygon((PlainMultiPolygon) plain(p));
        return g;
      }
      case "GeometryCollection" -> {
        var g = new GeometryCollection();
        g.setGeometryCollection((PlainGeometryCollection) plain(p));
        return g;
      }
      default -> throw new IllegalArgumentException(type);
    }
  }

  private static PlainGeometryBase plain(JsonNode p) {
    if (p == null) {
      return null;
    }
    var c = p.get("coordinates");
    return switch (p.get("type").asText()) {
      case "PlainPoint" -> point(c);
      case "PlainLineString" -> line(c);
      case "PlainLinearRing" -> ring(c);
      case "PlainPolygon" -> polygon(c);
      case "PlainMultiPoint" -> {
        var g = new PlainMultiPoint();
        g.setWrappedPoints(points(c));
        yield g;
      }
      case "PlainMultiLineString" -> {
        var g = new PlainMultiLineString();
        g.setWrappedLineStrings(new ArrayOfPlainLineString());
        c.forEach(l -> g.getWrappedLineStrings().getPlainLineString().add(line(l)));
        yield g;
      }
      case "PlainMultiPolygon" -> {
        var g = new PlainMultiPolygon();
        g.setWrappedPolygons(new ArrayOfPlainPolygon());
        c.forEach(l -> g.getWrappedPolygons().getPlainPolygon().add(polygon(l)));
        yield g;
      }
      case "PlainGeometryCollection" -> {
        var g = new PlainGeometryCollection();
        g.setWrappedGeometries(new ArrayOfPlainGeometryBase());
        p.get("geometries").forEach(m -> g.getWrappedGeometries().getPlainGeometryBase().add(plain(m)));
        yield g;
      }
      default -> throw new IllegalArgumentException(p.toString());
    };
  }

  private static PlainPoint point(JsonNode c) {
    var g = new PlainPoint();
    g.setX(c.get(0).asDouble());
    g.setY(c.get(1).asDouble());
    if (c.size() > 2) {
      g.setZ(c.get(2).asDouble());
    }
    return g;
  }

  private static ArrayOfPlainPoint points(JsonNode c) {
    var array = new ArrayOfPlainPoint();
    c.forEach(p -> array.getPlainPoint().add(point(p)));
    return array;
  }

  private static PlainLineString line(JsonNode c) {
    var g = new PlainLineString();
    g.setWrappedPoints(points(c));
    return g;
  }

  private static PlainLinearRing ring(JsonNode c) {
    var g = new PlainLinearRing();
    g.setWrappedPoints(points(c));
    return g;
  }

  private static PlainPolygon polygon(JsonNode c) {
    var g = new PlainPolygon();
    g.setWrappedLinearRings(new ArrayOfPlainLinearRing());
    c.forEach(r -> g.getWrappedLinearRings().getPlainLinearRing().add(ring(r)));
    return g;
  }

  private static KML kml(JsonNode k) {
    var kml = new KML();
    kml.setKml(Client.text(k, "kml"));
    if (k.has("placemarks")) {
      kml.setWrappedPlacemarks(new ArrayOfString());
      k.get("placemarks").forEach(p -> kml.getWrappedPlacemarks().getString().add(p.asText()));
    }
    return kml;
  }

  private static byte[] bytes(JsonNode base64) {
    try {
      return base64.binaryValue();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
