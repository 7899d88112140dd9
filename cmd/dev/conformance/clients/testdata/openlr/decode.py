"""Decodes OpenLR codes on a map with openlr_dereferencer. Input: the lines of the map as JSON, and the codes.
Output: for each code, the nodes of the lines that its path has a part of, or an error."""

import json
import sys

from openlr import Coordinates, FOW, FRC, binary_decode
from openlr_dereferencer import Config, decode
from openlr_dereferencer.maps import Line, MapReader, Node
from openlr_dereferencer.maps.wgs84 import distance, line_string_length
from shapely import STRtree
from shapely.geometry import LineString, Point, box
from shapely.ops import nearest_points


class TownNode(Node):
    def __init__(self, town, number):
        self.town, self.number = town, number

    node_id = property(lambda self: self.number)
    coordinates = property(lambda self: self.town.positions[self.number])

    def outgoing_lines(self):
        return self.town.outgoing.get(self.number, [])

    def incoming_lines(self):
        return self.town.incoming.get(self.number, [])

    def connected_lines(self):
        return [*self.incoming_lines(), *self.outgoing_lines()]


class TownLine(Line):
    def __init__(self, town, number, entry):
        self.town, self.number, self.nodes = town, number, entry["nodes"]
        self.shape = LineString(entry["course"])
        self.road = FRC(entry["class"]), FOW(entry["form"])
        self.metres = line_string_length(self.shape)

    line_id = property(lambda self: self.number)
    start_node = property(lambda self: TownNode(self.town, self.nodes[0]))
    end_node = property(lambda self: TownNode(self.town, self.nodes[-1]))
    frc = property(lambda self: self.road[0])
    fow = property(lambda self: self.road[1])
    geometry = property(lambda self: self.shape)
    length = property(lambda self: self.metres)

    def distance_to(self, coord):
        _, near = nearest_points(Point(coord.lon, coord.lat), self.shape)
        return distance(coord, Coordinates(near.x, near.y))


class Town(MapReader):
    def __init__(self, entries):
        self.positions, self.outgoing, self.incoming = {}, {}, {}
        self.lines = [TownLine(self, i, entry) for i, entry in enumerate(entries)]
        for line in self.lines:
            for node, at in ((line.nodes[0], line.shape.coords[0]), (line.nodes[-1], line.shape.coords[-1])):
                self.positions[node] = Coordinates(*at)
            self.outgoing.setdefault(line.nodes[0], []).append(line)
            self.incoming.setdefault(line.nodes[-1], []).append(line)
        self.tree = STRtree([line.shape for line in self.lines])

    def get_line(self, line_id):
        return self.lines[line_id]

    def get_lines(self):
        return self.lines

    def get_linecount(self):
        return len(self.lines)

    def get_node(self, node_id):
        return TownNode(self, node_id)

    def get_nodes(self):
        return (TownNode(self, node) for node in self.positions)

    def get_nodecount(self):
        return len(self.positions)

    def find_nodes_close_to(self, coord, dist):
        return (node for node in self.get_nodes() if distance(node.coordinates, coord) <= dist)

    def find_lines_close_to(self, coord, dist):
        high, wide = dist / 111_000, dist / 55_000
        area = box(coord.lon - wide, coord.lat - high, coord.lon + wide, coord.lat + high)
        return (line for i in self.tree.query(area) if (line := self.lines[i]).distance_to(coord) <= dist)


job = json.load(sys.stdin)
town = Town(job["lines"])
# The defaults do not tolerate a class that differs by one, as another map's may.
config = Config(tolerated_lfrc={frc: FRC(min(7, frc + 1)) for frc in FRC})
for code in job["codes"]:
    try:
        location = decode(binary_decode(code), town, config=config)
        nodes = []
        for line in location.lines:
            nodes = nodes[:-1] + line.nodes
        print(json.dumps({"nodes": nodes}))
    except Exception as error:  # whatever the library raises is its answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
