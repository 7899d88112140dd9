import { addProtocol, type LayerSpecification, type StyleSpecification } from "maplibre-gl";
import { PMTiles, Protocol, TileType } from "pmtiles";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import atlasUrl from "world-atlas/countries-50m.json?url";
import type { Palette } from "./palette";

/** Returns a map style with coastlines and borders on a plain background and, above them, the tiles of an archive. */
export async function basemap(colours: Palette, archive?: string): Promise<StyleSpecification> {
  const atlas = (await (await fetch(atlasUrl)).json()) as Topology<{
    countries: GeometryCollection;
    land: GeometryCollection;
  }>;
  const style: StyleSpecification = {
    version: 8,
    sources: {
      land: { type: "geojson", data: feature(atlas, atlas.objects.land) },
      borders: { type: "geojson", data: mesh(atlas, atlas.objects.countries, (a, b) => a !== b) },
    },
    layers: [
      { id: "sea", type: "background", paint: { "background-color": colours.sea } },
      { id: "land", type: "fill", source: "land", paint: { "fill-color": colours.land } },
      { id: "borders", type: "line", source: "borders", paint: { "line-color": colours.border } },
    ],
  };
  if (archive) await addTiles(style, colours, archive);
  return style;
}

const protocol = new Protocol();
addProtocol("pmtiles", protocol.tile);

async function addTiles(style: StyleSpecification, colours: Palette, archive: string): Promise<void> {
  const tiles = new PMTiles(archive);
  protocol.add(tiles);
  const [header, metadata] = await Promise.all([tiles.getHeader(), tiles.getMetadata()]);
  const url = `pmtiles://${archive}`;
  if (header.tileType !== TileType.Mvt) {
    style.sources.tiles = { type: "raster", url, tileSize: 256 };
    style.layers.push({ id: "tiles", type: "raster", source: "tiles" });
    return;
  }
  style.sources.tiles = { type: "vector", url };
  const names = ((metadata as { vector_layers?: { id: string }[] }).vector_layers ?? []).map((l) => l.id);
  const order = (name: string) => rules(colours).findIndex((r) => r.name.test(name));
  for (const name of names.sort((a, b) => order(a) - order(b))) {
    style.layers.push(...layersOf(name, colours));
  }
}

/** Names of the layers of Protomaps, OpenMapTiles and Shortbread, from bottom to top. */
const rules = (c: Palette) => [
  { name: /^(earth|land)$/, fill: c.land },
  { name: /water|ocean|sea/, fill: c.sea, line: c.sea },
  { name: /building/, fill: c.building },
  { name: /road|street|transport|highway|rail/, line: c.road },
  { name: /bound|border/, line: c.border },
  { name: /(?:)/ },
];

/** Areas and lines of a vector layer. Unknown ones are not drawn, to keep the background simple. */
function layersOf(name: string, colours: Palette): LayerSpecification[] {
  const { fill, line } = rules(colours).find((r) => r.name.test(name))!;
  const common = { source: "tiles", "source-layer": name };
  const found: LayerSpecification[] = [];
  if (fill) {
    found.push({
      ...common,
      id: `${name}-areas`,
      type: "fill",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: { "fill-color": fill },
    });
  }
  if (line) {
    found.push({
      ...common,
      id: `${name}-lines`,
      type: "line",
      filter: ["==", ["geometry-type"], "LineString"],
      layout: { "line-cap": "round", "line-join": "round" },
      paint: {
        "line-color": line,
        "line-width": ["interpolate", ["exponential", 1.6], ["zoom"], 8, 0.5, 18, 14],
      },
    });
  }
  return found;
}
