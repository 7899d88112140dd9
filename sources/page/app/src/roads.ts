import { useEffect, useState } from "preact/hooks";
import type { Geometry } from "./network";

/** What the forecaster knows of the streets beyond the layer, by index in the geometry. */
export interface Roads {
  /** Names; empty where unknown. */
  name: string[];
  detectors: string[][];
  /** Longitudes and latitudes in turn along each street; null where unknown. */
  course: (number[] | null)[];
  /** Index of each street in the forecaster's columns; -1 if it does not have the street. */
  column: Int32Array;
  /** Identifies the order of the columns. */
  list: string;
  /** The weekdays that have typical speeds. */
  weekdays: number[];
}

interface Columns {
  list: string;
  weekdays: number[];
  street: number[];
  fromnode: number[];
  name: string[];
  detectors: string[][];
  geometry: (number[] | null)[];
}

/** Speeds of all streets in km/h at a time, in the forecaster's columns. */
export interface SpeedsAt {
  list: string;
  /** Why speeds could not be read; empty if they were. */
  problem: string;
  measured: (number | null)[];
  usual: (number | null)[];
}

const refreshEvery = 60_000; // ms

async function fetchJSON<T>(url: string, signal?: AbortSignal): Promise<T | undefined> {
  try {
    const limit = AbortSignal.timeout(30_000);
    const r = await fetch(url, {
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    return r.ok ? await r.json() : undefined;
  } catch {
    return undefined; // the map is useful without it
  }
}

/** Fetches the names and the courses of the streets; undefined without a forecaster. A new round fetches them again. */
export function useRoads(
  base: string,
  enabled: boolean,
  geometry: Geometry,
  round: number,
): Roads | undefined {
  const [columns, setColumns] = useState<Columns>();
  const [roads, setRoads] = useState<Roads>();
  const streets = geometry.street.length;
  useEffect(() => {
    if (!enabled || streets === 0) return;
    let gone = false;
    let timer: ReturnType<typeof setTimeout>;
    const load = async () => {
      const found = await fetchJSON<Columns>(`${base}streets`);
      if (gone) return;
      if (found?.street) setColumns(found);
      else timer = setTimeout(load, refreshEvery);
    };
    void load();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [base, enabled, streets, round]);
  useEffect(() => columns && setRoads(joined(columns, geometry)), [columns, geometry]);
  return roads;
}

export function joined(columns: Columns, { street, fromnode }: Pick<Geometry, "street" | "fromnode">): Roads {
  const at = new Map(columns.street.map((s, i) => [`${s}/${columns.fromnode[i]}`, i]));
  const column = Int32Array.from(street, (s, i) => at.get(`${s}/${fromnode[i]}`) ?? -1);
  const pick = <T>(values: T[], none: T) => Array.from(column, (c) => (c < 0 ? none : values[c]));
  return {
    name: pick(columns.name, ""),
    detectors: pick(columns.detectors, []),
    course: pick(columns.geometry, null),
    column,
    list: columns.list,
    weekdays: columns.weekdays,
  };
}

/** The measured and usual speeds of all streets at a time, by index in the geometry. */
export interface SpeedsByStreet {
  time: string; // as it was requested
  problem: string;
  measured: Float32Array;
  usual: Float32Array;
}

/** Fetches the speeds at a time, which is the query of the request, again every minute. */
export function useSpeedsAt(
  base: string,
  roads: Roads | undefined,
  time: string,
  renew: () => void, // is called when the forecaster has other streets than roads
): SpeedsByStreet | undefined {
  const [found, setFound] = useState<SpeedsByStreet>();
  useEffect(() => {
    if (!roads) return;
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const load = async () => {
      const at = await fetchJSON<SpeedsAt>(`${base}streets?${time}`, gone.signal);
      if (gone.signal.aborted) return;
      setFound({ time, ...speedsAt(at, roads) });
      const changed = at && at.list !== roads.list;
      timer = changed ? setTimeout(renew, 1000) : setTimeout(load, refreshEvery);
    };
    void load();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [base, roads, time]);
  return found;
}

/** Speeds by index in the geometry; none if the response has other columns than the streets. */
export function speedsAt(at: SpeedsAt | undefined, roads: Pick<Roads, "list" | "column">) {
  const same = at?.list === roads.list ? at : undefined;
  const pick = (values: (number | null)[] = []) =>
    Float32Array.from(roads.column, (c) => (c < 0 ? Number.NaN : (values[c] ?? Number.NaN)));
  const problem = at ? at.problem : "the forecaster cannot be reached";
  return { problem, measured: pick(same?.measured), usual: pick(same?.usual) };
}

/** The geometry with streets that follow the road where its course is known. */
export function along(geometry: Geometry, roads: Roads | undefined): Geometry {
  if (!roads?.course.some((c) => c)) return geometry;
  const segments: number[] = [];
  const owner: number[] = [];
  geometry.owner.forEach((i, k) => {
    if (roads.course[i]) return;
    owner.push(i);
    for (let n = 4 * k; n < 4 * k + 4; n++) segments.push(geometry.segments[n]);
  });
  roads.course.forEach((line, i) => {
    for (let n = 0; line && n + 3 < line.length; n += 2) {
      owner.push(i);
      segments.push(line[n], line[n + 1], line[n + 2], line[n + 3]);
    }
  });
  return { ...geometry, segments: Float64Array.from(segments), owner: Uint32Array.from(owner) };
}
