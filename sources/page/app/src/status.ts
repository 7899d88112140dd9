import type example from "./status.example.json";

/** The response of /status, as schemas/openapi/operators.yaml describes it. The daemon's tests write the example. */
export type Status = Omit<
  typeof example,
  "state" | "latency" | "forecast" | "clients" | "stores" | "registries" | "history"
> & {
  state: "ok" | "degraded" | "not_ready";
  latency?: typeof example.latency;
  forecast?: Partial<typeof example.forecast> & { streets: number };
  clients: (Omit<(typeof example.clients)[0], "lastBatch" | "newestInterval" | "usualLag"> & {
    lastBatch?: string;
  })[];
  stores: (Omit<(typeof example.stores)[0], "error"> & { error?: string })[];
  registries: (Omit<(typeof example.registries)[0], "error" | "warnings"> & {
    error?: string;
    warnings?: string[];
  })[];
  history: { from: number; step: number; series: Record<string, (number | null)[]> };
};

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
