"""Makes the calls on standard input with zeep. toolkit_client_test.go defines the lines."""

import base64
import json
import logging
import sys
import warnings

import zeep
from lxml import etree
from requests.auth import HTTPBasicAuth

# The member that holds the items of a plain geometry, and the type of the items.
ITEMS = {
    "PlainLineString": ("wrappedPoints", "PlainPoint"),
    "PlainLinearRing": ("wrappedPoints", "PlainPoint"),
    "PlainPolygon": ("wrappedLinearRings", "PlainLinearRing"),
    "PlainMultiPoint": ("wrappedPoints", "PlainPoint"),
    "PlainMultiLineString": ("wrappedLineStrings", "PlainLineString"),
    "PlainMultiPolygon": ("wrappedPolygons", "PlainPolygon"),
    "PlainGeometryCollection": ("wrappedGeometries", "PlainGeometryBase"),
}


def member(kind):
    """The name of the element that holds the plain form: point for Point."""
    return kind[0].lower() + kind[1:]


class Writing:
    """Converts the members of the lines to the objects of zeep."""

    def __init__(self, client):
        self.types = {t.name: t for t in client.wsdl.types.types if t.name}

    def new(self, kind, **members):
        return self.types[kind](**members)

    def geometry(self, g):
        members = {"wkt": g.get("wkt")}
        if "wkb" in g:
            members["wkb"] = base64.b64decode(g["wkb"])
        if "plain" in g:
            members[member(g["type"])] = self.plain(g["plain"]["type"], g["plain"])
        if "kml" in g:
            members["kml"] = self.new("KML", kml=g["kml"].get("kml"), wrappedPlacemarks=self.array("String", g["kml"].get("placemarks")))
        return self.new(g["type"], **members)

    def plain(self, kind, p):
        if kind == "PlainGeometryCollection":
            return self.items(kind, [self.plain(g["type"], g) for g in p["geometries"]])
        return self.nested(kind, p["coordinates"])

    def nested(self, kind, coordinates):
        if kind == "PlainPoint":
            return self.new(kind, **dict(zip("xyz", coordinates)))
        return self.items(kind, [self.nested(ITEMS[kind][1], c) for c in coordinates])

    def items(self, kind, items):
        array, item = ITEMS[kind]
        return self.new(kind, **{array: {item: items}})

    def array(self, item, items):
        return None if items is None else {item: items}

    def options(self, o):
        return self.new(
            "RequestOptions",
            wrappedResponseGeometry=self.array("GeometryEncoding", o["encodings"]),
            coordFormat=o["coordFormat"],
            srId=o.get("srId"),
        )

    def context(self, properties):
        pairs = [{"key": k, "value": v} for k, v in properties.items()]
        return self.new("CallerContext", wrappedProperties=self.array("CallerContextProperty", pairs))


def kind_of(value):
    return type(value).__name__


def geometry(value):
    g = {"type": kind_of(value), "wkt": value.wkt}
    if value.wkb is not None:
        g["wkb"] = base64.b64encode(value.wkb).decode()
    if value[member(g["type"])] is not None:
        g["plain"] = plain(value[member(g["type"])])
    if value.kml is not None:
        g["kml"] = {"kml": value.kml.kml, "placemarks": value.kml.wrappedPlacemarks and value.kml.wrappedPlacemarks.String}
    return {k: v for k, v in g.items() if v is not None}


def plain(value):
    kind = kind_of(value)
    if kind == "PlainGeometryCollection":
        return {"type": kind, "geometries": [plain(g) for g in value.wrappedGeometries.PlainGeometryBase]}
    return {"type": kind, "coordinates": coordinates(value)}


def coordinates(value):
    kind = kind_of(value)
    if kind == "PlainPoint":
        return [c for c in (value.x, value.y, value.z) if c is not None]
    array, item = ITEMS[kind]
    return [coordinates(i) for i in value[array][item]]


def job(value):
    seen = {k: value[k] for k in ("id", "status", "elapsedTime")}
    if value.progress is not None:
        seen["progress"] = {"type": kind_of(value.progress)}
        seen["progress"].update({k: value.progress[k] for k in ("failed", "remaining", "successful")})
    return seen


def exception(value):
    stack, element = [], value.stackElement
    while element is not None:
        seen = {k: element[k] for k in ("errorKey", "message", "className")}
        seen["context"] = element.wrappedContext and element.wrappedContext.String
        stack.append(seen)
        element = element.cause
    return {"type": kind_of(value), "transactionId": value.transactionId, "stack": stack}


def fault(client, raised):
    detail = raised.detail[0]
    value = client.get_element(etree.QName(detail).text).parse(detail, client.wsdl.types)
    return exception(value) | {"string": raised.message}


def failures(array):
    return array and [{"index": f.index, "exception": exception(f.exception)} for f in array.ConversionFailure]


class Calls:
    """Has a method for each call of the lines, which returns the decoded response."""

    def __init__(self, wsdl):
        self.client = zeep.Client(wsdl)
        self.write = Writing(self.client)

    def authorize(self, line):
        session = self.client.transport.session
        session.auth = HTTPBasicAuth("anyone", line["password"]) if "password" in line else None
        session.headers.pop("Authorization", None)
        if "header" in line:
            session.headers["Authorization"] = line["header"]
        return {}

    def request(self, line):
        """Returns the members that all requests have."""
        context = {"callerContext": self.write.context(line["properties"])} if "properties" in line else {}
        return context | ({"id": line["id"]} if "id" in line else {})

    def convertGeometry(self, line):
        response = self.client.service.convertGeometry(
            geometry=self.write.geometry(line["geometry"]), options=self.write.options(line["options"]), **self.request(line)
        )
        return {"geometry": geometry(response)}

    def startConvertGeometries(self, line):
        geometries = [self.write.geometry(g) for g in line["geometries"]]
        response = self.client.service.startConvertGeometries(
            geometries=self.write.array("EncodedGeometry", geometries), options=self.write.options(line["options"]), **self.request(line)
        )
        return {"job": job(response)}

    def fetchConvertGeometries(self, line):
        response = self.client.service.fetchConvertGeometries(**self.request(line))
        geometries = response.wrappedGeometries
        return {
            "job": job(response.job),
            "geometries": geometries and [geometry(g) for g in geometries.EncodedGeometry],
            "failures": failures(response.wrappedFailures),
        }

    def watchJob(self, line):
        options = {"options": self.write.new("WatchOptions", **line["watch"])} if "watch" in line else {}
        return {"job": job(self.client.service.watchJob(**self.request(line), **options))}

    def stopJob(self, line):
        return {"job": job(self.client.service.stopJob(**self.request(line)))}

    def deleteJob(self, line):
        return {"job": job(self.client.service.deleteJob(**self.request(line)))}

    def handle(self, line):
        try:
            return getattr(self, line["call"])(line)
        except zeep.exceptions.Fault as raised:
            return {"fault": fault(self.client, raised)}
        except zeep.exceptions.TransportError as raised:
            return {"status": raised.status_code}
        except Exception as raised:  # the test reports it
            return {"error": repr(raised)}


def main():
    warnings.simplefilter("always")
    logging.basicConfig(level=logging.WARNING)
    calls = Calls(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(calls.handle(json.loads(line))), flush=True)


main()
