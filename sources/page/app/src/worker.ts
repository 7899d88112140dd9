import { fetchLayer, LayerError, type LayerState, layerPath } from "./client";
import { type Geometry, Network } from "./network";

/** What the page asks of the worker. */
export type Request =
  | { type: "start"; base: string; key: string; horizons: number[]; horizon: number }
  | { type: "horizon"; horizon: number };

/** What the worker reports. */
export type Report =
  | { type: "geometry"; geometry: Geometry }
  | { type: "speeds"; horizon: number; speeds: Float32Array; freeFlow: Float32Array }
  | { type: "state"; horizon: number; state: LayerState }
  | { type: "error"; message: string; status: number };

const pollInterval = 5_000; // ms between conditional requests

const network = new Network();
const etags = new Map<number, string>();
let options: Extract<Request, { type: "start" }>;
let wake = () => {};

const post = (report: Report, transfer: Transferable[] = []) => self.postMessage(report, { transfer });

async function refresh(horizon: number): Promise<void> {
  const url = layerPath(options.base, horizon);
  const { body, state } = await fetchLayer(url, options.key, etags.get(horizon));
  if (body) {
    etags.set(horizon, state.etag);
    const { speeds, grown } = network.take(body);
    if (grown) {
      const geometry = network.geometry();
      post({ type: "geometry", geometry }, [geometry.segments.buffer, geometry.owner.buffer]);
    }
    const freeFlow = Float32Array.from(network.freeFlow);
    post({ type: "speeds", horizon, speeds, freeFlow }, [speeds.buffer, freeFlow.buffer]);
  }
  post({ type: "state", horizon, state });
}

/** Refreshes the shown horizon first, then the others, and waits. A change of the horizon starts it again. */
async function run(): Promise<never> {
  for (;;) {
    try {
      const first = options.horizon;
      await refresh(first);
      for (const horizon of options.horizons) {
        if (options.horizon !== first) break;
        if (horizon !== first) await refresh(horizon);
      }
    } catch (e) {
      post({ type: "error", message: (e as Error).message, status: e instanceof LayerError ? e.status : 0 });
    }
    await new Promise<void>((resolve) => {
      wake = resolve;
      setTimeout(resolve, pollInterval);
    });
  }
}

self.onmessage = ({ data }: MessageEvent<Request>) => {
  if (data.type === "start") {
    const running = options !== undefined;
    options = data;
    if (!running) void run();
  } else {
    options.horizon = data.horizon;
  }
  wake();
};
