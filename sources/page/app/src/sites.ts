import type { GeoJSONSource, Map as GlMap, MapLayerMouseEvent } from "maplibre-gl";
import { useEffect, useState } from "preact/hooks";
import { css, none, type Palette, type Scale, stepOf } from "./palette";

/** A detector with its current speeds in km/h, as the daemon describes it in operators.yaml. */
export interface Site {
  productInstance: string;
  detectorCode: string;
  speed?: number;
  usual?: number;
  slowest?: number;
  measuredUntil?: string;
}

/** The sites at one position, which share a dot. */
export interface Place {
  longitude: number;
  latitude: number;
  sites: Site[];
}

/** The latest response of the daemon. */
export interface SitesState {
  places: Place[];
  /** When the archive was read; null before it could be read. */
  time: string | null;
  /** Why the speeds are not current or not complete; empty if they are. */
  problem: string;
}

/** Measurements of one type in the last hour. */
export interface Series {
  measureTypeCode: string;
  values: { from: string; to: string; value: number }[];
}

const pollEvery = 10_000; // ms; the daemon does not read the archive more often

/** Polls the current speeds of all sites while the page is visible. A response that has not changed is not parsed again. */
export function useSites(base: string, enabled: boolean): SitesState {
  const [state, setState] = useState<SitesState>({ places: [], time: null, problem: "" });
  useEffect(() => {
    if (!enabled) return;
    let timer: ReturnType<typeof setTimeout>;
    let gone = false;
    let etag = "";
    const poll = async () => {
      try {
        const r = await fetch(`${base}sites`, {
          cache: "no-cache",
          signal: AbortSignal.timeout(3 * pollEvery),
        });
        if (!r.ok) throw new Error(`status ${r.status}`);
        if (r.headers.get("ETag") !== etag) {
          const next: SitesState = await r.json();
          etag = r.headers.get("ETag") ?? "";
          if (!gone) setState(next);
        }
      } catch (e) {
        etag = "";
        if (!gone)
          setState((s) => ({ ...s, problem: `the daemon cannot be reached: ${(e as Error).message}` }));
      }
      if (!gone) timer = setTimeout(poll, pollEvery);
    };
    const visibility = () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") void poll();
    };
    visibility();
    document.addEventListener("visibilitychange", visibility);
    return () => {
      gone = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visibility);
    };
  }, [base, enabled]);
  return state;
}

/** The measurements of a site in the last hour. */
export async function fetchHour(base: string, site: Site): Promise<Series[]> {
  const query = new URLSearchParams({ product_instance: site.productInstance, detector: site.detectorCode });
  const r = await fetch(`${base}site?${query}`, { cache: "no-cache" });
  if (!r.ok) throw new Error(`The daemon returned the status ${r.status}.`);
  const { types, problem } = (await r.json()) as { types: Series[]; problem: string };
  if (problem && types.length === 0) throw new Error(`${problem}.`);
  return types;
}

/**
 * The step of a site: its speed as a share of the usual one or, if either is unknown, the speed of the slowest lane in km/h.
 * With the scale of km/h, always the latter.
 */
export function siteStep(s: Site, scale: Scale): number {
  if (scale !== "absolute" && s.speed !== undefined && s.usual !== undefined) {
    return stepOf(s.speed, s.usual, "relative");
  }
  return stepOf(s.slowest ?? Number.NaN, Number.NaN, "absolute");
}

/** The site that a dot shows: the one with the lowest step, the first one if none has a speed. */
export function worst(place: Place, scale: Scale): Site {
  return place.sites.reduce((a, b) => (siteStep(b, scale) < siteStep(a, scale) ? b : a));
}

/** The latest value of each lane and class: a row for each, a column for each measure. */
export function table(all: Series[]): {
  measures: string[];
  until: string; // end of the latest interval
  rows: { part: string; values: ({ value: number; to: string } | undefined)[] }[];
} {
  const measures: string[] = [];
  const rows = new Map<string, Map<string, { value: number; to: string }>>();
  let until = "";
  for (const { measureTypeCode, values } of all) {
    const [measure, ...rest] = measureTypeCode.split(".");
    const { value, to } = values[values.length - 1];
    const row = rows.get(rest.join(".")) ?? new Map();
    rows.set(rest.join("."), row.set(measure, { value, to }));
    if (!measures.includes(measure)) measures.push(measure);
    if (to > until) until = to;
  }
  const first = ["speed", "flow"];
  const order = (m: string) => (first.includes(m) ? first.indexOf(m) : first.length);
  measures.sort((a, b) => order(a) - order(b));
  const parts = [...rows.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return {
    measures,
    until,
    rows: parts.map((part) => ({ part, values: measures.map((m) => rows.get(part)!.get(m)) })),
  };
}

const layerId = "sites";

/** The dots of the places on the map. */
export class Dots {
  /** What is drawn: the step of each place. */
  steps = new Uint8Array();
  private places: Place[] = [];
  private data: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

  constructor(
    private map: GlMap,
    onChosen: (place: number) => void,
  ) {
    map.on("click", layerId, (e: MapLayerMouseEvent) => onChosen(e.features?.[0].properties.place as number));
    for (const [event, cursor] of [
      ["mouseenter", "pointer"],
      ["mouseleave", ""],
    ] as const) {
      map.on(event, layerId, () => {
        map.getCanvas().style.cursor = cursor;
      });
    }
  }

  /**
   * Draws on a map whose style has been (re)loaded, below the streets of the forecasts. If there are such streets, the dots
   * are not `alone`: they would hide them in a town, so they are small, and absent before one can tell streets apart.
   */
  attach(colours: Palette, stale: boolean, alone: boolean): void {
    const { map } = this;
    if (map.getLayer(layerId)) map.removeLayer(layerId);
    if (!map.getSource(layerId)) map.addSource(layerId, { type: "geojson", data: this.data });
    map.addLayer(
      {
        id: layerId,
        type: "circle",
        source: layerId,
        minzoom: alone ? 0 : 13.8,
        layout: { "circle-sort-key": ["-", 255, ["get", "step"]] }, // slow above fast, and both above unknown
        paint: {
          "circle-radius": alone
            ? ["interpolate", ["linear"], ["zoom"], 5, 1.6, 8, 2.6, 11, 5, 15, 9]
            : ["interpolate", ["linear"], ["zoom"], 14, 2.5, 16, 6],
          "circle-color": [
            "match",
            ["get", "step"],
            ...colours.steps.flatMap((c, i) => [i, css(c)]),
            css(colours.none),
          ] as never,
          "circle-opacity": stale ? 0.35 : 1,
          "circle-stroke-color": colours.land,
          "circle-stroke-width": ["interpolate", ["linear"], ["zoom"], 7, 0, 11, 1],
        },
      },
      map.getLayer("streets") && "streets",
    );
  }

  set(places: Place[], scale: Scale): void {
    this.places = places;
    this.steps = Uint8Array.from(places, (p) => siteStep(worst(p, scale), scale));
    this.data = {
      type: "FeatureCollection",
      features: places.map((p, place) => ({
        type: "Feature",
        geometry: { type: "Point", coordinates: [p.longitude, p.latitude] },
        properties: { place, step: this.steps[place] },
      })),
    };
    (this.map.getSource(layerId) as GeoJSONSource | undefined)?.setData(this.data);
  }

  /** How many places have a current speed. */
  get known(): number {
    return this.places.length - this.steps.filter((s) => s === none).length;
  }
}
