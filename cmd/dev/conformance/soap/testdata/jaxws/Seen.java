import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import xroute.*;

/** Converts objects of the generated classes to the members of the output lines. */
final class Seen {
  private Seen() {}

  static Map<String, ?> geometry(EncodedGeometry g) {
    var seen = new TreeMap<String, Object>();
    seen.put("type", g.getClass().getSimpleName());
    put(seen, "wkt", g.getWkt());
    put(seen, "wkb", g.getWkb());
    put(seen, "plain", plain(form(g)));
    if (g.getKml() != null) {
      seen.put("kml", kml(g.getKml()));
    }
    return seen;
  }

  private static void put(Map<String, Object> seen, String name, Object value) {
    if (value != null) {
      seen.put(name, value);
    }
  }

  private static Map<String, ?> kml(KML kml) {
    var seen = new TreeMap<String, Object>();
    put(seen, "kml", kml.getKml());
    if (kml.getWrappedPlacemarks() != null) {
      seen.put("placemarks", kml.getWrappedPlacemarks().getString());
    }
    return seen;
  }

  /** The plain form of a geometry, null if it has none. */
  private static PlainGeometryBase form(EncodedGeometry g) {
    if (g instanceof Point p) {
      return p.getPoint();
    } else if (g instanceof LineString l) {
      return l.getLineString();
    } else if (g instanceof LinearRing r) {
      return r.getLinearRing();
    } else if (g instanceof Polygon p) {
      return p.getPolygon();
    } else if (g instanceof MultiPoint m) {
      return m.getMultiPoint();
    } else if (g instanceof MultiLineString m) {
      return m.getMultiLineString();
    } else if (g instanceof MultiPolygon m) {
      return m.getMultiPolygon();
    } else if (g instanceof GeometryCollection c) {
      return c.getGeometryCollection();
    }
    throw new IllegalArgumentException(g.getClass().getName());
  }

  private static Map<String, ?> plain(PlainGeometryBase p) {
    if (p == null) {
      return null;
    }
    var type = p.getClass().getSimpleName();
    if (p instanceof PlainGeometryCollection c) {
      return Map.of("type", type, "geometries", c.getWrappedGeometries().getPlainGeometryBase().stream().map(Seen::plain).toList());
    }
    return Map.of("type", type, "coordinates", coordinates(p));
  }

  private static List<?> coordinates(PlainGeometryBase p) {
    if (p instanceof PlainPoint c) {
      return c.getZ() == null ? List.of(c.getX(), c.getY()) : List.of(c.getX(), c.getY(), c.getZ());
    } else if (p instanceof PlainLineString l) {
      return each(l.getWrappedPoints().getPlainPoint());
    } else if (p instanceof PlainLinearRing r) {
      return each(r.getWrappedPoints().getPlainPoint());
    } else if (p instanceof PlainPolygon g) {
      return each(g.getWrappedLinearRings().getPlainLinearRing());
    } else if (p instanceof PlainMultiPoint m) {
      return each(m.getWrappedPoints().getPlainPoint());
    } else if (p instanceof PlainMultiLineString m) {
      return each(m.getWrappedLineStrings().getPlainLineString());
    } else if (p instanceof PlainMultiPolygon m) {
      return each(m.getWrappedPolygons().getPlainPolygon());
    }
    throw new IllegalArgumentException(p.getClass().getName());
  }

  private static List<?> each(List<? extends PlainGeometryBase> parts) {
    return parts.stream().map(Seen::coordinates).toList();
  }

  static Map<String, Object> exception(BaseException exception) {
    var seen = new TreeMap<String, Object>(Map.of("type", exception.getClass().getSimpleName()));
    put(seen, "transactionId", exception.getTransactionId());
    seen.put("stack", stack(exception.getStackElement()));
    return seen;
  }

  private static List<?> stack(StackElement outermost) {
    var seen = new ArrayList<Object>();
    for (var e = outermost; e != null; e = e.getCause()) {
      var element = new TreeMap<String, Object>();
      put(element, "errorKey", e.getErrorKey());
      put(element, "message", e.getMessage());
      put(element, "className", e.getClassName());
      if (e.getWrappedContext() != null) {
        element.put("context", e.getWrappedContext().getString());
      }
      seen.add(element);
    }
    return seen;
  }
}
