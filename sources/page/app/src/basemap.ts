import {
  addProtocol,
  type ExpressionSpecification,
  type LayerSpecification,
  type StyleSpecification,
} from "maplibre-gl";
import { PMTiles, Protocol, TileType } from "pmtiles";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import atlasUrl from "world-atlas/countries-50m.json?url";
import type { Palette } from "./palette";

/** Below this zoom level the map shows coastlines and borders. Above it they would be wrong by kilometres. */
export const coastZoom = 7;

/** Returns a map style without anything but the ground. */
export const plainGround = (colours: Palette): StyleSpecification => ({
  version: 8,
  sources: {},
  layers: [{ id: "ground", type: "background", paint: { "background-color": colours.land } }],
});

/** Returns a map style with the ground, coastlines and borders if `coast` is set, and the tiles of an archive above them. */
export async function basemap(
  colours: Palette,
  coast: boolean,
  archive?: string,
): Promise<StyleSpecification> {
  const style = plainGround(colours);
  if (coast) await addCoast(style, colours);
  if (archive) await addTiles(style, colours, archive);
  return style;
}

async function addCoast(style: StyleSpecification, colours: Palette): Promise<void> {
  const atlas = (await (await fetch(atlasUrl)).json()) as Topology<{
    countries: GeometryCollection;
    land: GeometryCollection;
  }>;
  style.sources.land = { type: "geojson", data: feature(atlas, atlas.objects.land) };
  style.sources.borders = {
    type: "geojson",
    data: mesh(atlas, atlas.objects.countries, (a, b) => a !== b),
  };
  const fading = (from: number) =>
    ["interpolate", ["linear"], ["zoom"], coastZoom - 1, from, coastZoom, 0] as ExpressionSpecification;
  style.layers.push(
    {
      id: "sea",
      type: "background",
      maxzoom: coastZoom,
      paint: { "background-color": colours.sea, "background-opacity": fading(1) },
    },
    { id: "land", type: "fill", source: "land", maxzoom: coastZoom, paint: { "fill-color": colours.land } },
    {
      id: "borders",
      type: "line",
      source: "borders",
      maxzoom: coastZoom,
      paint: { "line-color": colours.border, "line-opacity": fading(1) },
    },
  );
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
