import type { GeoJSONSource, Map as GlMap } from "maplibre-gl";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Place, Site } from "./sites";

/** A detector whose measurements mislead or are missing, as the daemon describes it in operators.yaml. */
export interface Sick {
  productInstance: string;
  detectorCode: string; // empty: many detectors
  measureTypeCode: string;
  state: string;
  since: string;
  rule: string;
  reason: string;
}

interface Tested {
  productInstance: string;
  checkedAt: string;
  count: number;
  detectors: Sick[];
}

/** The latest response of the daemon. */
export interface Health {
  instances: Tested[];
  /** Why the states are not current; empty if they are. */
  problem: string;
}

const pollEvery = 30_000; // ms; the forecaster tests the detectors every few minutes

/** Polls the health of the detectors. Without an archive, there is none. */
export function useHealth(base: string, enabled: boolean): Health | undefined {
  const [health, setHealth] = useState<Health>();
  useEffect(() => {
    if (!enabled) return;
    let timer: ReturnType<typeof setTimeout>;
    let gone = false;
    const poll = async () => {
      try {
        const r = await fetch(`${base}detectors/health`, {
          cache: "no-cache",
          signal: AbortSignal.timeout(pollEvery),
        });
        if (!r.ok) throw new Error(`the daemon returned the status ${r.status}`);
        const next: Health = await r.json();
        if (!gone) setHealth(next);
      } catch (e) {
        if (!gone) setHealth((h) => ({ instances: h?.instances ?? [], problem: (e as Error).message }));
      }
      if (!gone) timer = setTimeout(poll, pollEvery);
    };
    void poll();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [base, enabled]);
  return health;
}

/** All sick detectors: states of many detectors first, then those that began last. */
export const useSick = (health: Health | undefined): Sick[] =>
  useMemo(() => {
    const all = (health?.instances ?? []).flatMap(({ productInstance, detectors }) =>
      detectors.map((d) => ({ ...d, productInstance })),
    );
    const many = (d: Sick) => (d.detectorCode === "" ? 0 : 1);
    return all.sort((a, b) => many(a) - many(b) || b.since.localeCompare(a.since));
  }, [health]);

/** The states of a site. */
export const statesOf = (site: Site, sick: Sick[]) =>
  sick.filter((d) => d.detectorCode === site.detectorCode && d.productInstance === site.productInstance);

/** The measurements of an hour. */
interface Hour {
  start: string;
  count: number;
  average: number;
  detectors: number;
}

/** The values of the hours at `times`, in seconds since 1970, and of the same hours a week before. */
export interface Evidence {
  times: number[];
  now: (number | null)[];
  before: (number | null)[];
}

/** What shows the state of a detector: the hours of two days, and the same hours of the week before. */
export async function fetchEvidence(base: string, d: Sick): Promise<Evidence> {
  const query = new URLSearchParams({
    product_instance: d.productInstance,
    detector: d.detectorCode,
    measure_type: d.measureTypeCode,
  });
  const r = await fetch(`${base}detectors/evidence?${query}`, { cache: "no-cache" });
  if (!r.ok) throw new Error(`The daemon returned the status ${r.status}.`);
  const { hours, problem } = (await r.json()) as { hours: Hour[]; problem: string };
  if (problem && hours.length === 0) throw new Error(`${problem}.`);
  return evidence(d.state, hours, Date.now());
}

/** What the chart of a state shows. */
export const measured = (state: string): "detectors" | "count" | "average" =>
  state === "feed" ? "detectors" : state === "silent" || state === "few" ? "count" : "average";

const hour = 3600; // s

/** An hour without measurements has no value, or 0 if they are counted. */
export function evidence(state: string, hours: Hour[], now: number): Evidence {
  const member = measured(state);
  const values = new Map(hours.map((h) => [Date.parse(h.start) / 1000, h[member]]));
  const last = Math.floor(now / 1000 / hour) * hour;
  const times = Array.from({ length: 48 }, (_, i) => last - (48 - i) * hour); // complete hours
  const at = (t: number) => values.get(t) ?? (member === "average" ? null : 0);
  return {
    times,
    now: times.map(at),
    before: times.map((t) => at(t - 168 * hour)),
  };
}

const layerId = "sick";

/** Rings around the places with a sick detector. */
export class Rings {
  private data: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

  constructor(private map: GlMap) {}

  /** Draws on a map whose style has been (re)loaded. */
  attach(): void {
    const { map } = this;
    if (map.getLayer(layerId)) map.removeLayer(layerId);
    if (!map.getSource(layerId)) map.addSource(layerId, { type: "geojson", data: this.data });
    map.addLayer({
      id: layerId,
      type: "circle",
      source: layerId,
      paint: {
        "circle-radius": ["interpolate", ["linear"], ["zoom"], 5, 3, 8, 5, 11, 8, 15, 13],
        "circle-opacity": 0,
        "circle-stroke-color": getComputedStyle(document.documentElement).getPropertyValue("--bad"),
        "circle-stroke-width": 2,
      },
    });
  }

  set(places: Place[], sick: Sick[]): void {
    const codes = new Set(sick.map((d) => `${d.productInstance}\n${d.detectorCode}`));
    const ringed = places.filter((p) =>
      p.sites.some((s) => codes.has(`${s.productInstance}\n${s.detectorCode}`)),
    );
    this.data = {
      type: "FeatureCollection",
      features: ringed.map((p) => ({
        type: "Feature",
        geometry: { type: "Point", coordinates: [p.longitude, p.latitude] },
        properties: {},
      })),
    };
    (this.map.getSource(layerId) as GeoJSONSource | undefined)?.setData(this.data);
  }
}
