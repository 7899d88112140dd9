import * as maplibregl from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";
import "maplibre-gl/dist/maplibre-gl.css";
import { fromBinary } from "@bufbuild/protobuf";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { basemap } from "./basemap";
import { Chart } from "./chart";
import { fetchLayer, type LayerState, layerPath } from "./client";
import { type StreetForecast, StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";
import type { Geometry } from "./network";
import { css, label, none, noneColour, type Scale, stepOf, steps } from "./palette";
import { Streets } from "./streets";
import type { Report, Request } from "./worker";

maplibregl.setWorkerUrl(new URL(workerUrl, import.meta.url).href);

/** What the daemon tells the page about itself. */
export interface Settings {
  horizons: number[];
  staleAfter: number; // s
  leftHand: boolean;
}

/** The state that tests read back: exactly what is drawn. */
export interface Shown {
  horizon: number;
  scale: Scale;
  street: Int32Array;
  fromnode: Int32Array;
  steps: Uint8Array;
}

declare global {
  interface Window {
    shown?: Shown;
    map?: maplibregl.Map;
    layersLoaded?: number;
  }
}

const empty: Geometry = {
  street: new Int32Array(),
  fromnode: new Int32Array(),
  segments: new Float64Array(),
  owner: new Uint32Array(),
  undecodable: 0,
};

const frameInterval = 700; // ms between horizons while playing

/** The forecast layer on a map. `base` is the daemon's address relative to the page. */
export function MapView(props: {
  base: string;
  apiKey: string;
  settings: Settings;
  dark: boolean;
  onKeyRefused?: (why: string) => void;
}) {
  const { base, apiKey, settings, dark } = props;
  const host = useRef<HTMLDivElement>(null);
  const streets = useRef(new Streets());
  const map = useRef<maplibregl.Map | null>(null);
  const worker = useRef<Worker | null>(null);
  const layers = useRef(new Map<number, Float32Array>()); // speeds by horizon
  const freeFlow = useRef<Float32Array>(new Float32Array()); // over all layers so far
  const fitted = useRef(0); // the map whose view was set to the streets
  const [geometry, setGeometry] = useState(empty);
  const [arrived, setArrived] = useState(0); // grows with each layer
  const [horizon, setHorizon] = useState(settings.horizons.includes(30) ? 30 : settings.horizons[0]);
  const [scale, setScale] = useState<Scale>("relative");
  const [playing, setPlaying] = useState(false);
  const [state, setState] = useState<LayerState>();
  const [error, setError] = useState("");
  const [selected, setSelected] = useState(-1);
  const [ready, setReady] = useState(0); // grows with each map that has loaded

  useEffect(() => {
    let gone = false;
    streets.current.leftHand = settings.leftHand;
    void basemap(dark).then((style) => {
      if (gone) return;
      const created = new maplibregl.Map({
        container: host.current!,
        style,
        center: [10, 50],
        zoom: 4,
        attributionControl: false,
        dragRotate: false,
        pitchWithRotate: false,
        canvasContextAttributes: { antialias: true },
      });
      created.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
      created.addControl(new maplibregl.ScaleControl(), "bottom-right");
      created.getCanvas().setAttribute("aria-label", "Map of the street forecasts");
      created.on("load", () => {
        created.addLayer(streets.current);
        setReady((n) => n + 1);
      });
      created.on("click", (e) => setSelected(streets.current.near(e.point, 12)));
      map.current = created;
      window.map = created;
    });
    return () => {
      gone = true;
      map.current?.remove();
      map.current = null;
    };
  }, [dark, settings.leftHand]);

  useEffect(() => {
    const w = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.current = w;
    w.onmessage = ({ data }: MessageEvent<Report>) => {
      if (data.type === "geometry") {
        streets.current.setGeometry(data.geometry);
        setGeometry(data.geometry);
      } else if (data.type === "speeds") {
        layers.current.set(data.horizon, data.speeds);
        freeFlow.current = data.freeFlow;
        window.layersLoaded = layers.current.size;
        setArrived((n) => n + 1);
      } else if (data.type === "state") {
        setState(data.state);
        setError("");
      } else if (data.status === 401 || data.status === 403) {
        props.onKeyRefused?.(data.message);
        setError(data.message);
      } else {
        setError(data.message || "The daemon cannot be reached.");
      }
    };
    const absolute = new URL(base, location.href).href;
    w.postMessage({
      type: "start",
      base: absolute,
      key: apiKey,
      horizons: settings.horizons,
      horizon,
    } satisfies Request);
    return () => w.terminate();
  }, [base, apiKey, settings]);

  useEffect(() => worker.current?.postMessage({ type: "horizon", horizon } satisfies Request), [horizon]);

  useEffect(() => {
    const speeds = layers.current.get(horizon);
    if (!speeds) return;
    const value = new Uint8Array(geometry.street.length).fill(none);
    for (let i = 0; i < speeds.length; i++) value[i] = stepOf(speeds[i], freeFlow.current[i], scale);
    streets.current.setSteps(value);
    window.shown = { horizon, scale, street: geometry.street, fromnode: geometry.fromnode, steps: value };
  }, [geometry, arrived, horizon, scale]);

  useEffect(() => {
    const s = geometry.segments;
    if (fitted.current === ready || s.length === 0 || !map.current) return;
    fitted.current = ready;
    map.current.fitBounds(extent(s), { padding: 40, animate: false });
  }, [geometry, ready]);

  useEffect(() => {
    if (!playing) return;
    const next = (h: number) =>
      settings.horizons[(settings.horizons.indexOf(h) + 1) % settings.horizons.length];
    const timer = setInterval(() => setHorizon(next), frameInterval);
    return () => clearInterval(timer);
  }, [playing, settings]);

  useEffect(() => {
    streets.current.selected = selected;
    map.current?.triggerRepaint();
  }, [selected]);

  const choose = (index: number) => {
    setSelected(index);
    const k = geometry.owner.indexOf(index);
    if (k >= 0)
      map.current?.jumpTo({ center: [geometry.segments[4 * k], geometry.segments[4 * k + 1]], zoom: 15 });
  };

  return (
    <div class="map-view">
      <div class="map" ref={host} />
      <section class="panel" aria-label="Forecast">
        <Freshness
          state={state}
          staleAfter={settings.staleAfter}
          error={error}
          streets={geometry.street.length}
        />
        <div class="row">
          <button type="button" aria-pressed={playing} onClick={() => setPlaying(!playing)}>
            {playing ? "Pause" : "Play"}
          </button>
          <input
            type="range"
            aria-label="Horizon"
            aria-valuetext={`in ${horizon} minutes`}
            min={0}
            max={settings.horizons.length - 1}
            value={settings.horizons.indexOf(horizon)}
            onInput={(e) => setHorizon(settings.horizons[e.currentTarget.valueAsNumber])}
          />
          <output class="horizon">{horizon === 0 ? "now" : `+${horizon} min`}</output>
        </div>
        <Legend scale={scale} onScale={setScale} />
        <Search geometry={geometry} onFound={choose} />
        {geometry.undecodable > 0 && (
          <p class="note">{geometry.undecodable} streets have no valid OpenLR code and are not drawn.</p>
        )}
        <p class="note">
          Lines connect the location reference points of each OpenLR code; they do not follow the road.
        </p>
      </section>
      {selected >= 0 && (
        <Street
          key={selected}
          base={base}
          apiKey={apiKey}
          street={geometry.street[selected]}
          fromnode={geometry.fromnode[selected]}
          arrived={arrived}
          onClose={() => setSelected(-1)}
        />
      )}
    </div>
  );
}

function extent(s: Float64Array): [number, number, number, number] {
  const box: [number, number, number, number] = [180, 90, -180, -90];
  for (let i = 0; i < s.length; i += 2) {
    box[0] = Math.min(box[0], s[i]);
    box[1] = Math.min(box[1], s[i + 1]);
    box[2] = Math.max(box[2], s[i]);
    box[3] = Math.max(box[3], s[i + 1]);
  }
  return box;
}

/** Age and coverage of the layer, with a second hand of its own. */
function Freshness(props: { state?: LayerState; staleAfter: number; error: string; streets: number }) {
  const { state, staleAfter, error, streets } = props;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  if (error) {
    return (
      <p class="freshness bad" role="alert">
        {error}
      </p>
    );
  }
  if (!state) return <p class="freshness">Loading the forecast layer …</p>;
  const age = (state.age ?? 0) + (now - state.received) / 1000;
  const ended = !state.coveredUntil || Date.parse(state.coveredUntil) < now;
  const stale = age > staleAfter || ended || streets === 0;
  const turn = new Date(Math.ceil(now / 60_000) * 60_000);
  return (
    <p class={`freshness ${stale ? "bad" : ""}`} role={stale ? "alert" : undefined}>
      {stale && <strong>Stale. </strong>}
      {streets.toLocaleString("en")} streets, data {duration(age)} old
      {state.coveredUntil ? `, until ${clock(state.coveredUntil)}` : ", no forecasts left"}
      <span class="note"> · next build {clock(turn)}</span>
    </p>
  );
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} days`;
}

const clock = (t: string | Date) =>
  new Date(t).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

function Legend(props: { scale: Scale; onScale: (s: Scale) => void }) {
  const { scale, onScale } = props;
  return (
    <fieldset class="legend">
      <legend>Speed</legend>
      <div class="row">
        {(["relative", "absolute"] as const).map((s) => (
          <label key={s}>
            <input type="radio" name="scale" checked={scale === s} onChange={() => onScale(s)} />
            {s === "relative" ? "of free flow" : "km/h"}
          </label>
        ))}
      </div>
      <ul>
        {steps.map((s, i) => (
          <li key={s.from}>
            <Swatch colour={css(s.colour)} />
            {label(i, scale)}
          </li>
        ))}
        <li>
          <Swatch colour={css(noneColour)} />
          no forecast
        </li>
      </ul>
    </fieldset>
  );
}

const Swatch = ({ colour }: { colour: string }) => (
  <svg width="22" height="8" aria-hidden="true">
    <rect width="22" height="8" rx="3" fill={colour} />
  </svg>
);

function Search(props: { geometry: Geometry; onFound: (index: number) => void }) {
  const [message, setMessage] = useState("");
  const { geometry, onFound } = props;
  return (
    <form
      class="row"
      onSubmit={(e) => {
        e.preventDefault();
        const text = String(new FormData(e.currentTarget).get("street")).trim();
        const found = geometry.street.indexOf(Number(text));
        setMessage(found < 0 || text === "" ? `No street ${text} in the layer.` : "");
        if (found >= 0 && text !== "") onFound(found);
      }}
    >
      <input name="street" inputMode="numeric" aria-label="Street id" placeholder="Street id" />
      <button type="submit">Find</button>
      <span class="note" role="status">
        {message}
      </span>
    </form>
  );
}

/** All periods of one street, fetched when it is chosen and again when the layer changes. */
function Street(props: {
  base: string;
  apiKey: string;
  street: number;
  fromnode: number;
  arrived: number;
  onClose: () => void;
}) {
  const { base, apiKey, street, fromnode, arrived, onClose } = props;
  const [forecast, setForecast] = useState<StreetForecast>();
  const [message, setMessage] = useState("Loading …");
  useEffect(() => {
    let gone = false;
    fetchLayer(layerPath(new URL(base, location.href).href, undefined, street), apiKey).then(
      ({ body }) => {
        if (gone) return;
        const all = fromBinary(StreetForecastResponseSchema, body!).streetForecast;
        const found = all.find((s) => s.street === street && s.fromnode === fromnode);
        setForecast(found);
        setMessage(found ? "" : "The street is no longer in the layer.");
      },
      (e: Error) => !gone && setMessage(e.message),
    );
    return () => {
      gone = true;
    };
  }, [base, apiKey, street, fromnode, arrived]);
  const line = useMemo(() => series(forecast), [forecast]);
  return (
    <section class="panel street" aria-label={`Street ${street}`}>
      <h2>
        Street {street} <small>from node {fromnode}</small>
        <button type="button" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </h2>
      {message && <p role="status">{message}</p>}
      {forecast && (
        <>
          <Chart
            label={`Forecast speed of street ${street} over all periods`}
            unit="km/h"
            times={line.times}
            lines={[{ label: "speed", colour: "#2f7ebc", values: line.speeds }]}
            steps
          />
          <dl>
            <dt>OpenLR code</dt>
            <dd>
              <code>{forecast.openLRcode}</code>
            </dd>
            <dt>Validity</dt>
            <dd>
              {forecast.forecast.length} periods
              {forecast.forecast.length > 0 &&
                `, ${clock(forecast.forecast[0].start)} to ${clock(forecast.forecast.at(-1)!.end)}`}
            </dd>
            <dt>Time zone</dt>
            <dd>{forecast.forecast[0]?.timezone ?? "–"}</dd>
          </dl>
        </>
      )}
    </section>
  );
}

/** The periods as steps: the speed at each start, and again at the last end. */
function series(s?: StreetForecast): { times: number[]; speeds: (number | null)[] } {
  const periods = s?.forecast ?? [];
  const times = periods.map((p) => Date.parse(p.start) / 1000);
  const speeds = periods.map((p) => (p.speedValid === false ? null : p.speed));
  const last = periods.at(-1);
  if (last) {
    times.push(Date.parse(last.end) / 1000);
    speeds.push(speeds.at(-1)!);
  }
  return { times, speeds };
}
