/** The state of the feed according to the headers of a layer. */
export interface LayerState {
  etag: string;
  /** Identifies the content of the layer, for `since`. */
  version: string;
  /** Age of the newest data when it was received, in seconds; absent before the first layer. */
  age?: number;
  coveredUntil?: string;
  /** When the response was received, in milliseconds since 1970. */
  received: number;
}

export class LayerError extends Error {
  constructor(
    message: string,
    /** The HTTP status; 0 without a response. */
    readonly status: number,
  ) {
    super(message);
  }
}

export const unreachable = "The daemon cannot be reached. These forecasts are no longer updated.";

/** The part of the layer to fetch. */
export interface Query {
  /** In minutes; without it, all periods. */
  horizon?: number;
  street?: number;
  /** The layer that the page already has, so that only changes are fetched, or nothing if there are none. */
  since?: LayerState;
  /** Seconds to wait for a change. */
  wait?: number;
}

/**
 * Fetches a layer like any other client. Returns no body if nothing has changed. Fails after `limit` ms, not counting the
 * time to wait for a change: without a limit, a lost connection would stop all updates.
 */
export async function fetchLayer(
  base: string,
  key: string,
  { horizon, street, since, wait = 0 }: Query,
  limit = 120_000,
): Promise<{ body?: Uint8Array; changes: boolean; state: LayerState }> {
  const query = Object.entries({ horizon, street, since: since?.version, fields: "all" }).filter(
    ([, v]) => v !== undefined,
  );
  const headers: Record<string, string> = { Accept: "application/x-protobuf" };
  if (key) headers.Authorization = `apiKey ${key}`;
  if (since) headers["If-None-Match"] = since.etag;
  if (wait) headers.Prefer = `wait=${wait}`;
  let response: Response;
  let body: ArrayBuffer;
  try {
    // Bypass the browser's cache, because a 304 must be visible to this code.
    const path = `${base}mlf/v1/forecast/realtime?${new URLSearchParams(query as [string, string][])}`;
    const signal = AbortSignal.timeout(1000 * wait + limit);
    response = await fetch(path, { headers, cache: "no-store", signal });
    body = await response.arrayBuffer();
  } catch {
    throw new LayerError(unreachable, 0);
  }
  const text = (name: string) => response.headers.get(name) ?? undefined;
  const age = text("Forecast-Age");
  const state: LayerState = {
    etag: text("ETag") ?? "",
    version: text("Forecast-Version") ?? "",
    age: age === undefined ? undefined : Number(age),
    coveredUntil: text("Forecast-Covered-Until"),
    received: Date.now(),
  };
  const changes = text("Forecast-Content") === "changes";
  if (response.status === 304) return { state, changes };
  if (!response.ok) throw new LayerError(errorText(body, response.status), response.status);
  return { body: new Uint8Array(body), state, changes };
}

/** The forecaster's details about a street: the last two hours and the forecast. Unknown speeds are absent. */
export interface StreetDetail {
  /** Seconds. */
  interval: number;
  /** End of the last measured interval. */
  origin: string;
  /** The worst basis of its detectors; "last" means the last value carried forward. */
  basis: "own" | "neighbours" | "profile" | "pool" | "last" | "nothing";
  points: {
    start: string;
    measured?: number;
    profile?: number;
    forecast?: number;
    /** What the forecast was an hour before the origin. */
    earlier?: number;
    low?: number;
    high?: number;
  }[];
}

/** Fetches the details of a street; undefined if the forecaster has none or cannot be reached. */
export async function fetchDetail(
  base: string,
  street: number,
  fromnode: number,
): Promise<StreetDetail | undefined> {
  try {
    const r = await fetch(`${base}street?street=${street}&fromnode=${fromnode}`, { cache: "no-store" });
    return r.ok ? await r.json() : undefined;
  } catch {
    return undefined;
  }
}

/** The daemon's message for an error, or the status. */
function errorText(body: ArrayBuffer, status: number): string {
  const text = new TextDecoder().decode(body);
  try {
    return JSON.parse(text).description ?? `HTTP status ${status}`;
  } catch {
    return text.length > 0 && text.length < 300 ? text.trim() : `HTTP status ${status}`;
  }
}
