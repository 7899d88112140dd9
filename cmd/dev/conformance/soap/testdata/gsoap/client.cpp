// Makes the calls on standard input with gSOAP. toolkit_client_test.go defines the lines.
#include "XRouteWSBinding.nsmap"
#include "soapXRouteWSBindingProxy.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

using nlohmann::json;

// put sets a member unless the value is absent.
static void put(json& seen, const char* name, const std::string* value) {
  if (value) seen[name] = *value;
}

// fail reports a call that the client does not support, and the test fails.
[[noreturn]] static void fail(const std::string& what) { throw std::runtime_error(what); }

// Make converts the members of the lines to objects of the generated classes. They live until proxy.destroy.
class Make {
 public:
  explicit Make(soap* context) : soap_(context) {}

  common__EncodedGeometry* geometry(const json& g) const {
    auto made = typed(g["type"], g.contains("plain") ? &g["plain"] : nullptr);
    made->wkt = text(g, "wkt");
    if (g.contains("wkb")) {
      made->wkb = soap_new_xsd__base64Binary(soap_);
      auto base64 = g["wkb"].get<std::string>();
      int size = 0;
      made->wkb->__ptr = (unsigned char*)soap_base642s(soap_, base64.c_str(), nullptr, 0, &size);
      made->wkb->__size = size;
    }
    if (g.contains("kml")) {
      made->kml = soap_new_common__KML(soap_);
      made->kml->kml = text(g["kml"], "kml");
      if (g["kml"].contains("placemarks")) {
        made->kml->wrappedPlacemarks = soap_new_prim__ArrayOfString(soap_);
        made->kml->wrappedPlacemarks->String = g["kml"]["placemarks"].get<std::vector<std::string>>();
      }
    }
    return made;
  }

  routing__RequestOptions* options(const json& o) const {
    auto made = soap_new_routing__RequestOptions(soap_);
    made->wrappedResponseGeometry = soap_new_common__ArrayOfGeometryEncoding(soap_);
    for (const auto& name : o["encodings"]) {
      common__GeometryEncoding encoding;
      if (soap_s2common__GeometryEncoding(soap_, name.get<std::string>().c_str(), &encoding)) fail("unknown encoding");
      made->wrappedResponseGeometry->GeometryEncoding.push_back(encoding);
    }
    if (soap_s2common__CoordFormat(soap_, o["coordFormat"].get<std::string>().c_str(), &made->coordFormat)) fail("unknown coordFormat");
    made->srId = text(o, "srId");
    return made;
  }

  caller__CallerContext* context(const json& line) const {
    if (!line.contains("properties")) return nullptr;
    auto made = soap_new_caller__CallerContext(soap_);
    made->wrappedProperties = soap_new_caller__ArrayOfCallerContextProperty(soap_);
    for (const auto& p : line["properties"].items()) {
      auto property = soap_new_caller__CallerContextProperty(soap_);
      property->key = string(p.key());
      property->value = string(p.value());
      made->wrappedProperties->CallerContextProperty.push_back(property);
    }
    return made;
  }

  common__WatchOptions* watch(const json& line) const {
    if (!line.contains("watch")) return nullptr;
    auto made = soap_new_common__WatchOptions(soap_);
    made->maximumPollingPeriod = number<int>(line["watch"]["maximumPollingPeriod"]);
    made->progressUpdatePeriod = number<int>(line["watch"]["progressUpdatePeriod"]);
    return made;
  }

 private:
  std::string* string(const std::string& value) const {
    auto made = soap_new_std__string(soap_);
    *made = value;
    return made;
  }

  std::string* text(const json& parent, const char* member) const {
    return parent.contains(member) ? string(parent[member]) : nullptr;
  }

  template <typename T>
  T* number(T value) const {
    auto made = static_cast<T*>(soap_malloc(soap_, sizeof(T)));
    *made = value;
    return made;
  }

  common__EncodedGeometry* typed(const std::string& type, const json* p) const {
    if (type == "Point") {
      auto g = soap_new_common__Point(soap_);
      if (p) g->point = point((*p)["coordinates"]);
      return g;
    }
    if (type == "LineString") {
      auto g = soap_new_common__LineString(soap_);
      if (p) g->lineString = line((*p)["coordinates"]);
      return g;
    }
    if (type == "LinearRing") {
      auto g = soap_new_common__LinearRing(soap_);
      if (p) g->linearRing = ring((*p)["coordinates"]);
      return g;
    }
    if (type == "Polygon") {
      auto g = soap_new_common__Polygon(soap_);
      if (p) g->polygon = polygon((*p)["coordinates"]);
      return g;
    }
    if (type == "MultiPoint") {
      auto g = soap_new_common__MultiPoint(soap_);
      if (p) {
        g->multiPoint = soap_new_common__PlainMultiPoint(soap_);
        g->multiPoint->wrappedPoints = points((*p)["coordinates"]);
      }
      return g;
    }
    if (type == "MultiLineString") {
      auto g = soap_new_common__MultiLineString(soap_);
      if (p) {
        g->multiLineString = soap_new_common__PlainMultiLineString(soap_);
        g->multiLineString->wrappedLineStrings = soap_new_common__ArrayOfPlainLineString(soap_);
        for (const auto& c : (*p)["coordinates"]) g->multiLineString->wrappedLineStrings->PlainLineString.push_back(line(c));
      }
      return g;
    }
    if (type == "MultiPolygon") {
      auto g = soap_new_common__MultiPolygon(soap_);
      if (p) {
        g->multiPolygon = soap_new_common__PlainMultiPolygon(soap_);
        g->multiPolygon->wrappedPolygons = soap_new_common__ArrayOfPlainPolygon(soap_);
        for (const auto& c : (*p)["coordinates"]) g->multiPolygon->wrappedPolygons->PlainPolygon.push_back(polygon(c));
      }
      return g;
    }
    if (type == "GeometryCollection") {
      auto g = soap_new_common__GeometryCollection(soap_);
      if (p) {
        g->geometryCollection = soap_new_common__PlainGeometryCollection(soap_);
        g->geometryCollection->wrappedGeometries = soap_new_common__ArrayOfPlainGeometryBase(soap_);
        for (const auto& m : (*p)["geometries"]) g->geometryCollection->wrappedGeometries->PlainGeometryBase.push_back(member(m));
      }
      return g;
    }
    fail("unknown geometry " + type);
  }

  common__PlainGeometryBase* member(const json& m) const {
    if (m["type"] == "PlainPoint") return point(m["coordinates"]);
    if (m["type"] == "PlainLineString") return line(m["coordinates"]);
    fail("unknown member of a collection " + m.dump());
  }

  common__PlainPoint* point(const json& c) const {
    auto p = soap_new_common__PlainPoint(soap_);
    p->x = c[0];
    p->y = c[1];
    if (c.size() > 2) p->z = number<double>(c[2]);
    return p;
  }

  common__ArrayOfPlainPoint* points(const json& coordinates) const {
    auto array = soap_new_common__ArrayOfPlainPoint(soap_);
    for (const auto& c : coordinates) array->PlainPoint.push_back(point(c));
    return array;
  }

  common__PlainLineString* line(const json& c) const {
    auto l = soap_new_common__PlainLineString(soap_);
    l->wrappedPoints = points(c);
    return l;
  }

  common__PlainLinearRing* ring(const json& c) const {
    auto r = soap_new_common__PlainLinearRing(soap_);
    r->wrappedPoints = points(c);
    return r;
  }

  common__PlainPolygon* polygon(const json& coordinates) const {
    auto p = soap_new_common__PlainPolygon(soap_);
    p->wrappedLinearRings = soap_new_common__ArrayOfPlainLinearRing(soap_);
    for (const auto& c : coordinates) p->wrappedLinearRings->PlainLinearRing.push_back(ring(c));
    return p;
  }

  soap* soap_;
};

// The following functions convert objects of the generated classes to the members of the output lines.

static json coordinates(const common__PlainPoint* p) {
  auto c = json::array({p->x, p->y});
  if (p->z) c.push_back(*p->z);
  return c;
}

template <typename T>
static json each(const std::vector<T*>& parts);

static json coordinates(const common__PlainLineString* l) { return each(l->wrappedPoints->PlainPoint); }
static json coordinates(const common__PlainLinearRing* r) { return each(r->wrappedPoints->PlainPoint); }
static json coordinates(const common__PlainPolygon* p) { return each(p->wrappedLinearRings->PlainLinearRing); }
static json coordinates(const common__PlainMultiPoint* m) { return each(m->wrappedPoints->PlainPoint); }
static json coordinates(const common__PlainMultiLineString* m) { return each(m->wrappedLineStrings->PlainLineString); }
static json coordinates(const common__PlainMultiPolygon* m) { return each(m->wrappedPolygons->PlainPolygon); }

template <typename T>
static json each(const std::vector<T*>& parts) {
  auto list = json::array();
  for (const auto* part : parts) list.push_back(coordinates(part));
  return list;
}

template <typename T>
static json plain(const char* type, const T* p) {
  return {{"type", type}, {"coordinates", coordinates(p)}};
}

static json plain(const common__PlainGeometryCollection* c) {
  auto list = json::array();
  for (const auto* g : c->wrappedGeometries->PlainGeometryBase) {
    if (auto p = dynamic_cast<const common__PlainPoint*>(g)) {
      list.push_back(plain("PlainPoint", p));
    } else if (auto l = dynamic_cast<const common__PlainLineString*>(g)) {
      list.push_back(plain("PlainLineString", l));
    } else {
      fail("unknown member of a collection");
    }
  }
  return {{"type", "PlainGeometryCollection"}, {"geometries", list}};
}

static json geometry(soap* context, const common__EncodedGeometry* g) {
  json seen;
  if (auto p = dynamic_cast<const common__Point*>(g)) {
    seen["type"] = "Point";
    if (p->point) seen["plain"] = plain("PlainPoint", p->point);
  } else if (auto l = dynamic_cast<const common__LineString*>(g)) {
    seen["type"] = "LineString";
    if (l->lineString) seen["plain"] = plain("PlainLineString", l->lineString);
  } else if (auto r = dynamic_cast<const common__LinearRing*>(g)) {
    seen["type"] = "LinearRing";
    if (r->linearRing) seen["plain"] = plain("PlainLinearRing", r->linearRing);
  } else if (auto s = dynamic_cast<const common__Polygon*>(g)) {
    seen["type"] = "Polygon";
    if (s->polygon) seen["plain"] = plain("PlainPolygon", s->polygon);
  } else if (auto mp = dynamic_cast<const common__MultiPoint*>(g)) {
    seen["type"] = "MultiPoint";
    if (mp->multiPoint) seen["plain"] = plain("PlainMultiPoint", mp->multiPoint);
  } else if (auto ml = dynamic_cast<const common__MultiLineString*>(g)) {
    seen["type"] = "MultiLineString";
    if (ml->multiLineString) seen["plain"] = plain("PlainMultiLineString", ml->multiLineString);
  } else if (auto ms = dynamic_cast<const common__MultiPolygon*>(g)) {
    seen["type"] = "MultiPolygon";
    if (ms->multiPolygon) seen["plain"] = plain("PlainMultiPolygon", ms->multiPolygon);
  } else if (auto c = dynamic_cast<const common__GeometryCollection*>(g)) {
    seen["type"] = "GeometryCollection";
    if (c->geometryCollection) seen["plain"] = plain(c->geometryCollection);
  } else {
    fail("unknown class of geometry");
  }
  put(seen, "wkt", g->wkt);
  if (g->wkb) seen["wkb"] = soap_s2base64(context, g->wkb->__ptr, nullptr, g->wkb->__size);
  if (g->kml) {
    seen["kml"] = json::object();
    put(seen["kml"], "kml", g->kml->kml);
    if (g->kml->wrappedPlacemarks) seen["kml"]["placemarks"] = g->kml->wrappedPlacemarks->String;
  }
  return seen;
}

static json job(soap* context, const common__Job* j) {
  json seen = {{"status", soap_common__JobStatus2s(context, j->status)}, {"elapsedTime", j->elapsedTime}};
  put(seen, "id", j->id);
  if (auto p = dynamic_cast<const common__BulkProgress*>(j->progress)) {
    seen["progress"] = {{"type", "BulkProgress"}, {"failed", p->failed}, {"remaining", p->remaining}, {"successful", p->successful}};
  }
  return seen;
}

static const char* type(const ex__BaseException* e) {
  if (dynamic_cast<const ex__XServiceException*>(e)) return "XServiceException";
  if (dynamic_cast<const ex__ParameterNotSetException*>(e)) return "ParameterNotSetException";
  if (dynamic_cast<const ex__IllegalParameterException*>(e)) return "IllegalParameterException";
  if (dynamic_cast<const ex__UnexpectedException*>(e)) return "UnexpectedException";
  fail("unknown class of exception");
}

static json exception(const ex__BaseException* e) {
  json seen = {{"type", type(e)}, {"stack", json::array()}};
  put(seen, "transactionId", e->transactionId);
  for (const auto* s = e->stackElement; s; s = s->cause) {
    auto element = json::object();
    put(element, "errorKey", s->errorKey);
    put(element, "message", s->message);
    put(element, "className", s->className);
    if (s->wrappedContext) element["context"] = s->wrappedContext->String;
    seen["stack"].push_back(element);
  }
  return seen;
}

// Client makes the calls that the lines describe.
class Client {
 public:
  Client() : proxy_(SOAP_XML_STRICT | SOAP_C_UTFSTRING | SOAP_IO_KEEPALIVE), make_(proxy_.soap) {}

  json handle(const json& line) {
    proxy_.destroy();
    const auto name = line["call"].get<std::string>();
    if (name == "authorize") {
      password_ = line.value("password", "");
      header_ = line.contains("header") ? "Authorization: " + line["header"].get<std::string>() : "";
      return json::object();
    }
    // gSOAP resets both after each call.
    proxy_.soap->userid = password_.empty() ? nullptr : "anyone";
    proxy_.soap->passwd = password_.empty() ? nullptr : password_.c_str();
    proxy_.soap->http_extra_header = header_.empty() ? nullptr : header_.c_str();
    if (name == "convertGeometry") {
      _routing__convertGeometry request;
      _routing__convertGeometryResponse response;
      request.geometry = make_.geometry(line["geometry"]);
      request.options = make_.options(line["options"]);
      request.callerContext = make_.context(line);
      if (proxy_.convertGeometry(&request, response)) return error();
      return {{"geometry", geometry(proxy_.soap, response.result)}};
    }
    if (name == "startConvertGeometries") {
      _routing__startConvertGeometries request;
      _routing__startConvertGeometriesResponse response;
      request.geometries = soap_new_common__ArrayOfEncodedGeometry(proxy_.soap);
      for (const auto& g : line["geometries"]) request.geometries->EncodedGeometry.push_back(make_.geometry(g));
      request.options = make_.options(line["options"]);
      request.callerContext = make_.context(line);
      if (proxy_.startConvertGeometries(&request, response)) return error();
      return {{"job", job(proxy_.soap, response.result)}};
    }
    if (name == "fetchConvertGeometries") {
      _routing__fetchConvertGeometries request;
      _routing__fetchConvertGeometriesResponse response;
      request.id = line["id"];
      request.callerContext = make_.context(line);
      if (proxy_.fetchConvertGeometries(&request, response)) return error();
      return fetched(response.result);
    }
    if (name == "watchJob") {
      _routing__watchJob request;
      _routing__watchJobResponse response;
      request.id = line["id"];
      request.options = make_.watch(line);
      request.callerContext = make_.context(line);
      if (proxy_.watchJob(&request, response)) return error();
      return {{"job", job(proxy_.soap, response.result)}};
    }
    if (name == "stopJob") {
      _routing__stopJob request;
      _routing__stopJobResponse response;
      request.id = line["id"];
      request.callerContext = make_.context(line);
      if (proxy_.stopJob(&request, response)) return error();
      return {{"job", job(proxy_.soap, response.result)}};
    }
    if (name == "deleteJob") {
      _routing__deleteJob request;
      _routing__deleteJobResponse response;
      request.id = line["id"];
      request.callerContext = make_.context(line);
      if (proxy_.deleteJob(&request, response)) return error();
      return {{"job", job(proxy_.soap, response.result)}};
    }
    fail("unknown call " + name);
  }

 private:
  json fetched(const routing__ConvertedGeometries* result) {
    json seen = {{"job", job(proxy_.soap, result->job)}, {"geometries", json::array()}, {"failures", json::array()}};
    if (result->wrappedGeometries) {
      for (const auto* g : result->wrappedGeometries->EncodedGeometry) seen["geometries"].push_back(geometry(proxy_.soap, g));
    }
    if (result->wrappedFailures) {
      for (const auto* f : result->wrappedFailures->ConversionFailure) {
        seen["failures"].push_back({{"index", f->index}, {"exception", exception(f->exception)}});
      }
    }
    return seen;
  }

  // error returns the fault, or the HTTP status of a response without an envelope.
  json error() {
    const auto* fault = proxy_.soap_fault();
    const auto* detail = fault ? fault->detail : nullptr;
    const ex__BaseException* raised = nullptr;
    if (detail && detail->ex__XServiceException_) raised = detail->ex__XServiceException_;
    if (detail && detail->ex__ParameterNotSetException_) raised = detail->ex__ParameterNotSetException_;
    if (detail && detail->ex__IllegalParameterException_) raised = detail->ex__IllegalParameterException_;
    if (detail && detail->ex__UnexpectedException_) raised = detail->ex__UnexpectedException_;
    if (raised) {
      auto seen = exception(raised);
      seen["string"] = proxy_.soap_fault_string();
      return {{"fault", seen}};
    }
    if (proxy_.soap->error >= 400 && proxy_.soap->error < 600) return {{"status", proxy_.soap->error}};
    char text[1000];
    return {{"error", proxy_.soap_sprint_fault(text, sizeof text)}};
  }

  XRouteWSBindingProxy proxy_;
  Make make_;
  std::string password_, header_;
};

int main() {
  Client client;
  for (std::string line; std::getline(std::cin, line);) {
    json seen;
    try {
      seen = client.handle(json::parse(line));
    } catch (const std::exception& e) {
      seen = {{"error", e.what()}};
    }
    std::cout << seen.dump() << std::endl;
  }
}
