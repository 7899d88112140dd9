/** How a layer was obtained: the state of the feed as its headers tell it. */
export interface LayerState {
  etag: string;
  /** Age of the newest data when it was received, in seconds; absent before the first layer. */
  age?: number;
  coveredUntil?: string;
  lastModified?: string;
  /** When the answer was received, in milliseconds since 1970. */
  received: number;
}

export class LayerError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** The path of the layer for a horizon in minutes; without one, of all periods. */
export function layerPath(base: string, horizon?: number, street?: number): string {
  const query = new URLSearchParams();
  if (horizon !== undefined) query.set("horizon", String(horizon));
  if (street !== undefined) query.set("street", String(street));
  const text = query.toString();
  return `${base}mlf/v1/forecast/realtime${text ? `?${text}` : ""}`;
}

/** Fetches a layer as any client does. Returns no body if it is still the one that `etag` names. */
export async function fetchLayer(
  url: string,
  key: string,
  etag?: string,
): Promise<{ body?: Uint8Array; state: LayerState }> {
  const headers: Record<string, string> = { Accept: "application/x-protobuf" };
  if (key) headers.Authorization = `apiKey ${key}`;
  if (etag) headers["If-None-Match"] = etag;
  // The browser's cache is bypassed: conditions are ours, and a 304 must be visible.
  const response = await fetch(url, { headers, cache: "no-store" });
  const text = (name: string) => response.headers.get(name) ?? undefined;
  const age = text("Forecast-Age");
  const state: LayerState = {
    etag: text("ETag") ?? "",
    age: age === undefined ? undefined : Number(age),
    coveredUntil: text("Forecast-Covered-Until"),
    lastModified: text("Last-Modified"),
    received: Date.now(),
  };
  if (response.status === 304) return { state };
  if (!response.ok) throw new LayerError(await errorText(response), response.status);
  return { body: new Uint8Array(await response.arrayBuffer()), state };
}

/** The daemon's own words for an error, or the status. */
async function errorText(response: Response): Promise<string> {
  try {
    const body = await response.json();
    const first = body.errors?.[0] ?? body;
    return first.message ?? first.errorMessage ?? first.description ?? `HTTP status ${response.status}`;
  } catch {
    return `HTTP status ${response.status}`;
  }
}
