import * as maplibregl from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";
import "maplibre-gl/dist/maplibre-gl.css";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { basemap } from "./basemap";
import type { LayerState } from "./client";
import { Rings, useHealth, useSick } from "./health";
import { Freshness, Legend, Search, SitesNote } from "./MapPanel";
import type { Geometry } from "./network";
import { dark as darkPalette, light, none, type Scale, stepOf } from "./palette";
import { SickOnMap } from "./SickDetectors";
import { SitePanel } from "./SitePanel";
import { StreetPanel } from "./StreetPanel";
import type { Settings } from "./settings";
import { Dots, type Place, type SitesState, useSites } from "./sites";
import { GlStreets, RasterStreets, type Streets } from "./streets";
import { useDark } from "./theme";
import type { Report, Request } from "./worker";

maplibregl.setWorkerUrl(new URL(workerUrl, import.meta.url).href);

/** The state that tests read, which is exactly what is drawn. */
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
    streets?: Streets;
    dots?: Dots;
    sites?: SitesState;
  }
}

const empty: Geometry = {
  street: new Int32Array(),
  fromnode: new Int32Array(),
  segments: new Float64Array(),
  owner: new Uint32Array(),
  undecodable: 0,
};

const software = drawsInSoftware();

const frameInterval = 700; // ms between horizons while playing

/** The forecast layer on a map. `base` is the daemon's address relative to the page. */
export default function MapView(props: {
  base: string;
  apiKey: string;
  settings: Settings;
  onKeyRefused?: (why: string) => void;
}) {
  const { base, apiKey, settings } = props;
  const colours = useDark() ? darkPalette : light;
  const host = useRef<HTMLDivElement>(null);
  const streets = useRef(useMemo<Streets>(() => (software ? new RasterStreets() : new GlStreets()), []));
  const map = useRef<maplibregl.Map | null>(null);
  const worker = useRef<Worker | null>(null);
  const layers = useRef(new Map<number, Float32Array>()); // speeds by horizon
  const freeFlow = useRef<Float32Array>(new Float32Array()); // over all layers so far
  const fitted = useRef(false);
  const [geometry, setGeometry] = useState(empty);
  const [arrived, setArrived] = useState(0); // grows with each layer
  // Without horizons it is undefined, so that the whole layer is shown, with the first period of each street.
  const [horizon, setHorizon] = useState(settings.horizons.includes(30) ? 30 : settings.horizons[0]);
  const [chosenScale, setScale] = useState<Scale>();
  const sites = useSites(base, settings.sites);
  const hasSites = sites.places.length > 0;
  const withStreets = settings.forecasts || !hasSites; // the streets, or why there are none
  const compared = useMemo(
    () => sites.places.some((p) => p.sites.some((s) => s.usual !== undefined)),
    [sites],
  );
  const scale = chosenScale ?? (withStreets || compared ? "relative" : "absolute");
  const sick = useSick(useHealth(base, settings.sites));
  const rings = useRef<Rings | null>(null);
  const dots = useRef<Dots | null>(null);
  const look = useRef({ colours, old: false });
  look.current = { colours, old: sites.problem !== "" };
  const shownSites = useRef(sites);
  const [chosenPlace, setChosenPlace] = useState("");
  const [known, setKnown] = useState(0); // places with a current speed
  const [playing, setPlaying] = useState(false);
  const [state, setState] = useState<LayerState>();
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [selected, setSelected] = useState(-1);
  const [forecasts, setForecasts] = useState(0);
  const [mapError, setMapError] = useState("");

  useEffect(() => {
    streets.current.leftHand = settings.leftHand;
    const created = new maplibregl.Map({
      container: host.current!,
      center: [10, 50],
      zoom: 4,
      attributionControl: settings.basemap ? { compact: true } : false,
      dragRotate: false,
      pitchWithRotate: false,
      maxPitch: 0, // RasterStreets needs a flat map
      canvasContextAttributes: { antialias: !software },
      pixelRatio: software ? 1 : undefined,
    });
    created.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
    created.addControl(new maplibregl.ScaleControl(), "bottom-right");
    created.getCanvas().setAttribute("aria-label", "Map of the street forecasts");
    created.on("click", (e) => {
      setChosenPlace("");
      setSelected(streets.current.near(e.point, 12));
    });
    // After the handler above: a dot below the pointer wins over a street.
    dots.current = new Dots(created, (place) => {
      setChosenPlace(placeId(shownSites.current.places[place]));
      setSelected(-1);
    });
    window.dots = dots.current;
    rings.current = new Rings(created);
    created.on("error", (e) => setMapError(e.error.message));
    if (software) streets.current.attach(created); // immediately, because it does not need the basemap
    created.on("style.load", () => {
      // also after the WebGL context was lost
      streets.current.attach(created);
      dots.current!.attach(look.current.colours, look.current.old);
      rings.current!.attach();
    });
    map.current = created;
    window.map = created;
    window.streets = streets.current;
    return () => created.remove();
  }, [settings]);

  useEffect(() => {
    let gone = false;
    const archive = settings.basemap ? new URL("basemap.pmtiles", location.href).href : undefined;
    streets.current.setColours(colours);
    basemap(colours, archive).then(
      (style) => {
        const m = map.current;
        if (gone || !m) return;
        // Streets are drawn before the basemap has loaded, because users wait for them.
        if (m.getLayer("streets")) m.removeLayer("streets");
        m.setStyle(style, { diff: false });
      },
      (e: Error) => setMapError(`Cannot load the basemap: ${e.message}`),
    );
    return () => {
      gone = true;
    };
  }, [colours, settings]);

  useEffect(() => {
    if (!settings.forecasts) {
      // Shown only if there are no sites either.
      setError("No forecasts are configured: the operator must set forecasts.feed.");
      return;
    }
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
      } else {
        if (data.status === 401 || data.status === 403) props.onKeyRefused?.(data.message);
        setError(data.message);
      }
    };
    const send = (r: Request) => w.postMessage(r);
    send({
      type: "start",
      base: new URL(base, location.href).href,
      key: apiKey,
      horizons: settings.horizons,
      horizon,
    });
    const visibility = () => send({ type: "visible", visible: document.visibilityState === "visible" });
    document.addEventListener("visibilitychange", visibility);
    return () => {
      document.removeEventListener("visibilitychange", visibility);
      w.terminate();
    };
  }, [base, apiKey, settings]);

  useEffect(() => worker.current?.postMessage({ type: "horizon", horizon } satisfies Request), [horizon]);

  useLayoutEffect(() => {
    const speeds = layers.current.get(horizon);
    if (!speeds) return;
    const value = new Uint8Array(geometry.street.length).fill(none);
    let known = 0;
    for (let i = 0; i < speeds.length; i++) {
      value[i] = stepOf(speeds[i], freeFlow.current[i], scale);
      if (value[i] !== none) known++;
    }
    setForecasts(known);
    streets.current.setSteps(value);
    window.shown = { horizon, scale, street: geometry.street, fromnode: geometry.fromnode, steps: value };
  }, [geometry, arrived, horizon, scale]);

  useLayoutEffect(() => {
    shownSites.current = sites;
    window.sites = sites;
    dots.current?.set(sites.places, scale);
    setKnown(dots.current?.known ?? 0);
  }, [sites, scale]);

  useEffect(() => rings.current?.set(sites.places, sick), [sites, sick]);

  useEffect(() => {
    if (map.current?.getLayer("sites")) dots.current?.attach(look.current.colours, look.current.old);
  }, [sites.problem !== ""]);

  const place = sites.places.find((p) => placeId(p) === chosenPlace);
  useEffect(() => {
    if (!place || !map.current) return;
    const element = document.createElement("div");
    element.className = "chosen-place";
    const marker = new maplibregl.Marker({ element }).setLngLat([place.longitude, place.latitude]);
    marker.addTo(map.current);
    return () => void marker.remove();
  }, [chosenPlace, place === undefined]);

  useEffect(() => {
    if (fitted.current || settings.forecasts || !hasSites || !map.current) return;
    fitted.current = true;
    fit(map.current, extent(Float64Array.from(sites.places.flatMap((p) => [p.longitude, p.latitude]))));
  }, [hasSites]);

  useEffect(() => {
    if (fitted.current || geometry.segments.length === 0 || !map.current) return;
    fitted.current = true;
    fit(map.current, extent(geometry.segments));
  }, [geometry]);

  useEffect(() => {
    if (!playing) return;
    const next = (h: number) =>
      settings.horizons[(settings.horizons.indexOf(h) + 1) % settings.horizons.length];
    const timer = setInterval(() => setHorizon(next), frameInterval);
    return () => clearInterval(timer);
  }, [playing, settings]);

  useEffect(() => {
    streets.current.select(selected);
  }, [selected]);

  const choose = (index: number) => {
    setChosenPlace("");
    setSelected(index);
    const own = geometry.segments.filter((_, k) => geometry.owner[k >> 2] === index);
    if (own.length > 0) map.current?.fitBounds(extent(own), { padding: 140, maxZoom: 15, animate: false });
  };
  const chooseSite = (code: string) => {
    const found = sites.places.find((p) => p.sites.some((s) => s.detectorCode === code));
    if (!found) return false;
    setSelected(-1);
    setChosenPlace(placeId(found));
    map.current?.jumpTo({
      center: [found.longitude, found.latitude],
      zoom: Math.max(map.current.getZoom(), 11),
    });
    return true;
  };
  const close = useCallback(() => {
    setSelected(-1);
    setChosenPlace("");
  }, []);
  const notes = useMemo(
    () => (
      <>
        {geometry.undecodable > 0 && (
          <p class="note">{geometry.undecodable} streets have no valid OpenLR code and are not drawn.</p>
        )}
        {geometry.street.length > 0 && (
          <p class="note">
            Lines connect the location reference points of each OpenLR code; they do not follow the road.
          </p>
        )}
        {mapError && <p class="note bad">{mapError}</p>}
      </>
    ),
    [geometry, mapError],
  );

  return (
    <div class={`map-view ${stale && withStreets ? "stale" : ""} ${selected >= 0 || place ? "chosen" : ""}`}>
      <div class="map" ref={host} />
      <section class="panel" aria-label={withStreets ? "Forecast" : "Sites"}>
        {withStreets && (
          <Freshness
            state={state}
            staleAfter={settings.staleAfter}
            nearest={settings.horizons.length > 0 ? Math.min(...settings.horizons) : 0}
            error={error}
            streets={geometry.street.length}
            forecasts={forecasts}
            onStale={setStale}
          />
        )}
        <SitesNote sites={sites} known={known} />
        <SickOnMap sick={sick} onChosen={chooseSite} />
        {settings.horizons.length > 0 && withStreets && (
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
        )}
        <Search
          geometry={geometry}
          selected={selected}
          onFound={choose}
          onSite={hasSites ? chooseSite : undefined}
        />
        <div class="more">
          <Legend colours={colours} scale={scale} onScale={setScale} streets={withStreets} sites={hasSites} />
          {notes}
        </div>
      </section>
      {place && (
        <SitePanel
          key={chosenPlace}
          base={base}
          place={place}
          sick={sick}
          scale={scale}
          measureTypes={settings.measureTypes ?? []}
          onClose={close}
        />
      )}
      {selected >= 0 && (
        <StreetPanel
          key={selected}
          base={base}
          apiKey={apiKey}
          street={geometry.street[selected]}
          fromnode={geometry.fromnode[selected]}
          arrived={arrived}
          horizon={horizon ?? 0}
          forecaster={settings.forecaster}
          onClose={close}
        />
      )}
    </div>
  );
}

const placeId = (p: Place) => `${p.longitude},${p.latitude}`;

/** Shows a box in the part of the map that the panel leaves. */
function fit(map: maplibregl.Map, box: [number, number, number, number]) {
  const besidePanel = map.getContainer().clientWidth > 900 ? 360 : 24;
  map.fitBounds(box, { padding: { top: 24, bottom: 40, left: besidePanel, right: 48 }, animate: false });
}

/** Reports whether there is no graphics processor. */
function drawsInSoftware(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2");
  const name = String(
    gl?.getParameter(gl.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL ?? gl.RENDERER),
  );
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
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
