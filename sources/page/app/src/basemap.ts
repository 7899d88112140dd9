import type { StyleSpecification } from "maplibre-gl";
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import atlasUrl from "world-atlas/countries-50m.json?url";

/** Returns a map style with coastlines and borders on a plain background. */
export async function basemap(dark: boolean): Promise<StyleSpecification> {
  const atlas = (await (await fetch(atlasUrl)).json()) as Topology<{
    countries: GeometryCollection;
    land: GeometryCollection;
  }>;
  return {
    version: 8,
    sources: {
      land: { type: "geojson", data: feature(atlas, atlas.objects.land) },
      borders: { type: "geojson", data: mesh(atlas, atlas.objects.countries, (a, b) => a !== b) },
    },
    layers: [
      { id: "sea", type: "background", paint: { "background-color": dark ? "#10161d" : "#dfe8ef" } },
      { id: "land", type: "fill", source: "land", paint: { "fill-color": dark ? "#1b232c" : "#f7f6f2" } },
      {
        id: "borders",
        type: "line",
        source: "borders",
        paint: { "line-color": dark ? "#3d4a58" : "#b9b4aa", "line-width": 1 },
      },
    ],
  };
}
