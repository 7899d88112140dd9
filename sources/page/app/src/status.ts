/** The answer of /status; its description is in the daemon's OpenAPI document. */
export interface Status {
  time: string;
  version: string;
  started: string;
  state: "ok" | "degraded" | "not_ready";
  /** What is wrong and what to do, worst first; empty if all is well. */
  summary: string[];
  /** Per second, over the last interval of the history. */
  rates: { batches: number; accepted: number; rejected: number };
  /** Of a 207, in seconds, over the last minute; absent without one. */
  latency?: { p50: number; p99: number };
  codes: { code: string; total: number; perSecond: number }[];
  clients: { name: string; batches: number; accepted: number; rejected: number; lastBatch?: string }[];
  journal?: { bytes: number; limit: number; diskFree: number };
  stores: { name: string; rows: number; seconds: number; error?: string; deadLetters: number }[];
  registries: { productInstance: string; detectors: number; age: number; error?: string }[];
  forecast?: { streets: number; age?: number; coveredUntil?: string; stale?: string };
  history: { from: number; step: number; series: Record<string, (number | null)[]> };
}

/** A line of /rejections. */
export interface Item {
  time: string;
  client: string;
  code: string;
  detector?: string;
  field?: string;
  message?: string;
  batch: string;
  index: number;
}
