import { fetchLayer, LayerError, type LayerState, unreachable } from "./client";
import { type Geometry, Network, type Speeds } from "./network";

/** Messages from the page to the worker. */
export type Request =
  | { type: "start"; base: string; alive: string; key: string; horizons: number[]; horizon: number }
  | { type: "horizon"; horizon: number }
  | { type: "visible"; visible: boolean };

/** Messages from the worker to the page. */
export type Report =
  | { type: "geometry"; geometry: Geometry }
  | { type: "speeds"; horizon: number; speeds: Speeds; freeFlow: Float32Array; length: Float32Array }
  | { type: "state"; state: LayerState }
  | { type: "error"; message: string; status: number };

const pollInterval = 5_000; // ms between requests for the same layer, unless one waited for a change
const patience = 25; // s that a request waits for a change; only in the foreground tab, because browsers limit connections

const network = new Network();
const states = new Map<number, LayerState>();
let options: Extract<Request, { type: "start" }>;
let visible = true;
let wake = () => {};

const post = (report: Report, transfer: Transferable[] = []) => self.postMessage(report, { transfer });

/** Fetches the changes in the layer of a horizon, waiting for a change if there is none. */
async function refresh(horizon: number, wait = 0): Promise<void> {
  const query = { horizon, since: states.get(horizon), wait };
  const { body, changes, state } = await fetchLayer(options.base, options.key, query);
  states.set(horizon, state);
  if (body && !(changes && body.length === 0)) take(horizon, body, changes);
  post({ type: "state", state }); // last: with a state but no streets, the layer is empty
}

function take(horizon: number, body: Uint8Array, changes: boolean): void {
  const { grown, ...speeds } = network.take(horizon, body, changes);
  if (grown) {
    const geometry = network.geometry();
    post({ type: "geometry", geometry }, [geometry.segments.buffer, geometry.owner.buffer]);
  }
  const freeFlow = Float32Array.from(network.freeFlow);
  const length = Float32Array.from(network.length);
  post(
    { type: "speeds", horizon, speeds, freeFlow, length },
    [speeds.speed, speeds.low, speeds.high, freeFlow, length].map((a) => a.buffer),
  );
}

/**
 * Watches the daemon while a request waits for a change, because a connection to a daemon that no longer responds stays
 * open: the user would see old forecasts as current ones until the wait ends.
 */
async function watch(waiting: Promise<void>): Promise<void> {
  let done = false;
  const ended = waiting.finally(() => {
    done = true;
  });
  const alive = async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, pollInterval));
      if (done) return;
      try {
        await fetch(options.alive, {
          method: "HEAD",
          cache: "no-store",
          signal: AbortSignal.timeout(pollInterval),
        });
      } catch {
        if (!done) throw new LayerError(unreachable, 0);
      }
    }
  };
  await Promise.race([ended, alive()]);
}

/**
 * Fetches the layer of each horizon, the shown one first. Then waits for a change of the shown one and refreshes all. If
 * the user chooses another horizon, the wait continues, so the layer of that horizon may be up to `patience` old.
 */
async function run(): Promise<never> {
  for (;;) {
    const began = Date.now();
    try {
      const { horizon, horizons } = options;
      const known = horizons.every((h) => states.has(h));
      const first = refresh(horizon, known && visible ? patience : 0);
      await watch(first);
      for (const h of horizons) {
        if (h !== horizon) await refresh(h);
      }
    } catch (e) {
      post({ type: "error", message: (e as Error).message, status: e instanceof LayerError ? e.status : 0 });
    }
    await new Promise<void>((resolve) => {
      wake = resolve;
      setTimeout(resolve, Math.max(0, began + pollInterval - Date.now()));
    });
  }
}

self.onmessage = ({ data }: MessageEvent<Request>) => {
  if (data.type === "start") {
    const running = options !== undefined;
    options = data;
    if (!running) void run();
  } else if (data.type === "horizon") {
    options.horizon = data.horizon;
    if (!states.has(data.horizon)) wake();
  } else {
    visible = data.visible;
    wake();
  }
};
