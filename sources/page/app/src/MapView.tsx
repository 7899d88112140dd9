import * as maplibregl from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";
import "maplibre-gl/dist/maplibre-gl.css";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { readAddress, writeAddress } from "./address";
import { basemap, coastZoom, plainGround } from "./basemap";
import type { LayerState } from "./client";
import { delay, worst } from "./delays";
import type { WeekHour } from "./format";
import { Hover, type StreetState } from "./Hover";
import { Rings, useHealth, useSick } from "./health";
import { Freshness, hours, Legend, Notes, Search, SitesNote, TimeSlider, WorstDelays } from "./MapPanel";
import type { Geometry, Speeds } from "./network";
import { dark as darkPalette, light, none, type Scale, scales, stepOf } from "./palette";
import { along, useRoads, useSpeedsAt } from "./roads";
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
  typical?: WeekHour;
  scale: Scale;
  street: Int32Array;
  fromnode: Int32Array;
  steps: Uint8Array;
  /** What the page shows of each street: speed, bounds and free flow in km/h, delay in minutes; NaN where unknown. */
  speed: Float32Array;
  low: Float32Array;
  high: Float32Array;
  freeFlow: Float32Array;
  delay: Float32Array;
  worst: number[];
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

const noStreets: Geometry = {
  street: new Int32Array(),
  fromnode: new Int32Array(),
  segments: new Float64Array(),
  owner: new Uint32Array(),
  undecodable: 0,
};

const software = drawsInSoftware();

const frameInterval = 700; // ms between times while playing

/** Times before now whose measurements can be shown, in minutes. */
const measuredTimes = Array.from({ length: 8 }, (_, i) => 15 * (i - 8));

const worstCount = 10;

const nothing = new Float32Array();

/** The forecast layer on a map. `base` is the daemon's address relative to the page. */
export default function MapView(props: {
  base: string;
  apiKey: string;
  settings: Settings;
  operator: boolean;
  onKeyRefused?: (why: string) => void;
}) {
  const { base, apiKey, settings, operator } = props;
  const colours = useDark() ? darkPalette : light;
  const host = useRef<HTMLDivElement>(null);
  const streets = useRef(useMemo<Streets>(() => (software ? new RasterStreets() : new GlStreets()), []));
  const map = useRef<maplibregl.Map | null>(null);
  const worker = useRef<Worker | null>(null);
  const layers = useRef(new Map<number, Speeds>()); // by horizon
  const freeFlow = useRef<Float32Array>(nothing);
  const lengths = useRef<Float32Array>(nothing);
  const address = useRef(useMemo(() => readAddress(location.hash), []));
  const fitted = useRef(address.current.place !== undefined);
  const [straight, setGeometry] = useState(noStreets); // as the OpenLR codes have it
  const [round, setRound] = useState(0); // of fetching the streets
  const roads = useRoads(base, settings.forecaster, straight, round);
  const geometry = useMemo(() => along(straight, roads), [straight, roads]);
  const [arrived, setArrived] = useState(0); // grows with each layer
  const times = useMemo(
    () => [...(settings.forecaster ? measuredTimes : []), ...settings.horizons],
    [settings],
  );
  // Without horizons it is undefined, so that the whole layer is shown, with the first period of each street.
  const [minutes, setMinutes] = useState(
    times.find((t) => t === address.current.minutes) ?? times.find((t) => t >= 0),
  );
  const horizon = minutes === undefined || minutes >= 0 ? minutes : settings.horizons[0]; // of the layer
  const [typical, setTypical] = useState(settings.forecaster ? address.current.typical : undefined);
  const kind = typical ? "typical" : minutes !== undefined && minutes < 0 ? "measured" : "forecast";
  const time = typical ? `weekday=${typical.weekday}&hour=${typical.hour}` : `minutes=${minutes ?? 0}`;
  const found = useSpeedsAt(base, roads, time, () => setRound((n) => n + 1));
  const at = found?.time === time ? found : undefined;
  const [chosenScale, setScale] = useState<Scale | undefined>(
    scales.find((s) => s === address.current.colours),
  );
  const sites = useSites(base, settings.sites);
  const hasSites = sites.places.length > 0;
  const withStreets = settings.forecasts || !hasSites; // the streets, or why there are none
  const compared = useMemo(
    () => sites.places.some((p) => p.sites.some((s) => s.usual !== undefined)),
    [sites],
  );
  const hasFreeFlow = useMemo(() => freeFlow.current.some((v) => v > 0), [arrived]);
  const choices: Scale[] = [];
  if (withStreets && hasFreeFlow) choices.push("relative");
  if ((roads || compared) && !typical) choices.push("usual");
  choices.push("absolute");
  const scale = chosenScale && choices.includes(chosenScale) ? chosenScale : choices[0];
  const sick = useSick(useHealth(base, settings.sites));
  const rings = useRef<Rings | null>(null);
  const dots = useRef<Dots | null>(null);
  const look = useRef({ colours, old: false, alone: true });
  look.current = { colours, old: sites.problem !== "", alone: !settings.forecasts };
  const shownSites = useRef(sites);
  const [chosenPlace, setChosenPlace] = useState("");
  const [known, setKnown] = useState(0); // places with a current speed
  const [playing, setPlaying] = useState(false);
  const [state, setState] = useState<LayerState>();
  const empty = state !== undefined && geometry.street.length === 0;
  const [error, setError] = useState("");
  const [stale, setStale] = useState(false);
  const [selected, setSelected] = useState(-1);
  const [forecasts, setForecasts] = useState(0);
  const [mapError, setMapError] = useState("");
  const [canDraw, setCanDraw] = useState(true);
  const [drawnMap, setDrawnMap] = useState<maplibregl.Map>();
  const [coast, setCoast] = useState(false); // the map shows so much that coastlines and borders are right

  useEffect(() => {
    streets.current.leftHand = settings.leftHand;
    const [longitude, latitude, zoom] = address.current.place ?? [10, 50, 4];
    let created: maplibregl.Map;
    try {
      created = new maplibregl.Map({
        container: host.current!,
        style: plainGround(look.current.colours),
        center: [longitude, latitude],
        zoom,
        attributionControl: settings.basemap ? { compact: true } : false,
        dragRotate: false,
        pitchWithRotate: false,
        maxPitch: 0, // RasterStreets needs a flat map
        canvasContextAttributes: { antialias: !software },
        pixelRatio: software ? 1 : undefined,
      });
    } catch {
      setCanDraw(false);
      return;
    }
    created.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
    created.addControl(new maplibregl.ScaleControl(), "bottom-right");
    created.getCanvas().setAttribute("aria-label", "Map of the street forecasts");
    created.on("click", (e) => {
      setChosenPlace("");
      setSelected(streets.current.near(e.point, 12));
    });
    created.on("moveend", (e) => {
      setCoast((shown) => shown || (fitted.current && created.getZoom() < coastZoom));
      if (!(e as { originalEvent?: Event }).originalEvent) return;
      const { lng, lat } = created.getCenter();
      address.current.place = [lng, lat, created.getZoom()];
      keep(address.current);
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
      dots.current!.attach(look.current.colours, look.current.old, look.current.alone);
      rings.current!.attach();
    });
    map.current = created;
    setDrawnMap(created);
    window.map = created;
    window.streets = streets.current;
    return () => created.remove();
  }, [settings]);

  useEffect(() => {
    let gone = false;
    const archive = settings.basemap ? new URL("basemap.pmtiles", location.href).href : undefined;
    streets.current.setColours(colours);
    basemap(colours, coast || empty, archive).then(
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
  }, [colours, coast || empty, settings]);

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
        setGeometry(data.geometry);
      } else if (data.type === "speeds") {
        layers.current.set(data.horizon, data.speeds);
        freeFlow.current = data.freeFlow;
        lengths.current = data.length;
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
      alive: new URL("settings.json", location.href).href,
      key: apiKey,
      horizons: settings.horizons,
      horizon: horizon as number,
    });
    const visibility = () => send({ type: "visible", visible: document.visibilityState === "visible" });
    document.addEventListener("visibilitychange", visibility);
    return () => {
      document.removeEventListener("visibilitychange", visibility);
      w.terminate();
    };
  }, [base, apiKey, settings]);

  useEffect(
    () => worker.current?.postMessage({ type: "horizon", horizon: horizon as number } satisfies Request),
    [horizon],
  );

  useLayoutEffect(() => streets.current.setGeometry(geometry), [geometry]);

  /** What is shown of all streets at the chosen time. */
  const values = useMemo(() => {
    const layer = kind === "forecast" ? layers.current.get(horizon as number) : undefined;
    const speed = { forecast: layer?.speed, measured: at?.measured, typical: at?.usual }[kind];
    return {
      speed: speed ?? nothing,
      low: layer?.low ?? nothing,
      high: layer?.high ?? nothing,
      usual: (typical ? undefined : at?.usual) ?? nothing,
      freeFlow: freeFlow.current,
      length: lengths.current,
      measured: at?.measured ?? nothing,
      ready: speed !== undefined,
    };
  }, [geometry, arrived, horizon, kind, at]);

  const worstAt = useMemo(() => {
    const of = (h?: number) => {
      const speed = layers.current.get(h as number)?.speed;
      const columns = { freeFlow: freeFlow.current, length: lengths.current };
      return { minutes: h, speed, streets: speed ? worst({ speed, ...columns }, worstCount) : [] };
    };
    const near = (m: number) =>
      settings.horizons.toSorted((a, b) => Math.abs(a - m) - Math.abs(b - m))[0] as number | undefined;
    return [...new Set([near(0), near(30)])].map(of);
  }, [arrived, settings]);

  useLayoutEffect(() => {
    if (!values.ready) return;
    const value = new Uint8Array(geometry.street.length).fill(none);
    const reference = scale === "usual" ? values.usual : values.freeFlow;
    let known = 0;
    for (let i = 0; i < values.speed.length; i++) {
      value[i] = stepOf(values.speed[i], reference[i] ?? Number.NaN, scale);
      if (!Number.isNaN(values.speed[i])) known++;
    }
    setForecasts(known);
    streets.current.setSteps(value);
    window.shown = {
      horizon: minutes as number,
      typical,
      scale,
      street: geometry.street,
      fromnode: geometry.fromnode,
      steps: value,
      speed: values.speed,
      low: values.low,
      high: values.high,
      freeFlow: values.freeFlow,
      get delay() {
        return values.speed.map((v, i) => delay(v, values.freeFlow[i], values.length[i]));
      },
      worst: worstAt[0].streets,
    };
  }, [geometry, values, minutes, typical, scale, worstAt]);

  useLayoutEffect(() => {
    shownSites.current = sites;
    window.sites = sites;
    dots.current?.set(sites.places, scale);
    setKnown(dots.current?.known ?? 0);
  }, [sites, scale]);

  useEffect(() => rings.current?.set(sites.places, sick), [sites, sick]);

  useEffect(() => {
    if (map.current?.getLayer("sites"))
      dots.current?.attach(look.current.colours, look.current.old, look.current.alone);
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
    if (geometry.segments.length === 0 || !map.current) return;
    const wanted = address.current.street;
    const found = wanted ? indexOf(geometry, wanted) : -1;
    if (!fitted.current) {
      fitted.current = true;
      if (found >= 0) show(found);
      else fit(map.current, extent(geometry.segments));
    }
    if (found >= 0) setSelected(found);
  }, [straight]);

  useEffect(() => {
    if (!playing) return;
    const next = (t?: number) => times[(times.indexOf(t as number) + 1) % times.length];
    const timer = setInterval(() => {
      if (typical) setTypical((t) => t && { ...t, hour: (t.hour + 1) % hours.length });
      else setMinutes(next);
    }, frameInterval);
    return () => clearInterval(timer);
  }, [playing, times, typical === undefined]);

  useEffect(() => {
    streets.current.select(selected);
    if (selected >= 0) uncover(map.current, segmentsOf(geometry, selected));
  }, [selected]);

  const first = times.find((t) => t >= 0);
  useEffect(() => {
    if (geometry.street.length === 0) return; // the street of the address is not known yet
    address.current = {
      ...address.current,
      street: selected < 0 ? undefined : `${geometry.street[selected]}/${geometry.fromnode[selected]}`,
      minutes: minutes === first ? undefined : minutes,
      typical,
      colours: chosenScale,
    };
    keep(address.current);
  }, [selected, minutes, typical, chosenScale]);

  const show = (index: number) => {
    const own = segmentsOf(geometry, index);
    if (own.length === 0 || !map.current) return;
    fit(map.current, extent(own), true);
  };
  const choose = (index: number) => {
    setChosenPlace("");
    setSelected(index);
    show(index);
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
  const nameOf = (i: number) => roads?.name[i] || `Street ${geometry.street[i]}`;
  const describe = (i: number): StreetState => ({
    name: nameOf(i),
    speed: values.speed[i],
    low: values.low[i] ?? Number.NaN,
    high: values.high[i] ?? Number.NaN,
    usual: values.usual[i] ?? Number.NaN,
    freeFlow: values.freeFlow[i],
    delay: delay(values.speed[i], values.freeFlow[i], values.length[i]),
    measured: kind === "forecast" && minutes === 0 ? (values.measured[i] ?? Number.NaN) : Number.NaN,
    kind,
  });
  const next = () => {
    const list = worst(values, geometry.street.length);
    return list.length > 0 ? list[(list.indexOf(selected) + 1) % list.length] : -1;
  };

  return (
    <div class={`map-view ${stale && withStreets ? "stale" : ""} ${selected >= 0 || place ? "chosen" : ""}`}>
      <div class="map" ref={host}>
        {!canDraw && (
          <p class="empty" role="alert">
            This browser cannot draw the map, because WebGL is not available or is switched off. The search,
            the list of delays and the charts work without it.
          </p>
        )}
      </div>
      <Hover map={drawnMap} streets={streets.current} describe={describe} />
      <section class="panel" aria-label={withStreets ? "Forecast" : "Sites"}>
        {withStreets && (
          <Freshness
            state={state}
            staleAfter={settings.staleAfter}
            nearest={settings.horizons.length > 0 ? Math.min(...settings.horizons) : 0}
            error={error}
            streets={geometry.street.length}
            forecasts={forecasts}
            kind={kind}
            operator={operator}
            onStale={setStale}
          />
        )}
        <SitesNote sites={sites} known={known} />
        <SickOnMap sick={sick} onChosen={chooseSite} />
        {minutes !== undefined && withStreets && !empty && (
          <TimeSlider
            times={times}
            minutes={minutes}
            typical={typical}
            problem={kind === "forecast" && scale !== "usual" ? "" : (at?.problem ?? "")}
            playing={playing}
            onPlay={() => setPlaying(!playing)}
            onChange={setMinutes}
            onTypical={roads || typical ? setTypical : undefined}
            weekdays={roads?.weekdays ?? []}
          />
        )}
        {(!empty || hasSites) && (
          <Search
            geometry={geometry}
            roads={roads}
            selected={selected}
            onFound={choose}
            onSite={hasSites ? chooseSite : undefined}
          />
        )}
        <div class="more">
          {(!empty || hasSites) && (
            <Legend
              colours={colours}
              scale={scale}
              choices={choices}
              onScale={setScale}
              kind={kind}
              streets={withStreets}
              sites={hasSites}
            />
          )}
          {withStreets && !empty && (
            <WorstDelays
              lists={worstAt}
              freeFlow={freeFlow.current}
              length={lengths.current}
              selected={selected}
              nameOf={nameOf}
              onChosen={choose}
            />
          )}
          <Notes
            geometry={geometry}
            courses={roads?.course.some((c) => c) ?? false}
            withBasemap={settings.basemap}
            operator={operator}
            error={mapError}
          />
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
          detectors={roads?.detectors[selected] ?? []}
          shown={describe(selected)}
          arrived={arrived}
          minutes={minutes ?? 0}
          typical={typical}
          forecaster={settings.forecaster}
          onNext={() => {
            const i = next();
            if (i >= 0) choose(i);
          }}
          onClose={close}
        />
      )}
    </div>
  );
}

/** Writes the address without a new entry in the browser's history. */
function keep(a: ReturnType<typeof readAddress>) {
  const hash = writeAddress(location.hash, a);
  if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
}

const indexOf = (g: Geometry, name: string) => g.street.findIndex((s, i) => `${s}/${g.fromnode[i]}` === name);

const segmentsOf = (g: Geometry, index: number) => g.segments.filter((_, k) => g.owner[k >> 2] === index);

/** Moves the map if a panel covers a street. */
function uncover(map: maplibregl.Map | null, own: Float64Array) {
  if (!map || own.length === 0) return;
  const free = padding(map, true);
  const { clientWidth, clientHeight } = map.getContainer();
  const [west, south, east, north] = extent(own);
  const a = map.project([west, north]);
  const b = map.project([east, south]);
  const shift = (from: number, to: number, low: number, high: number) =>
    from < low ? from - low : to > high ? Math.min(to - high, from - low) : 0;
  const x = shift(a.x, b.x, free.left, clientWidth - free.right);
  const y = shift(a.y, b.y, free.top, clientHeight - free.bottom);
  if (x !== 0 || y !== 0) map.panBy([x, y], { animate: false });
}

/** The part of the map that the panels cover. */
function padding(map: maplibregl.Map, chosen: boolean) {
  const wide = map.getContainer().clientWidth > 900;
  return { top: 24, bottom: 40, left: wide ? 400 : 24, right: wide && chosen ? 460 : 48 };
}

const placeId = (p: Place) => `${p.longitude},${p.latitude}`;

/** Shows a box in the part of the map that the panels leave: of a chosen street, with its surroundings. */
function fit(map: maplibregl.Map, box: [number, number, number, number], chosen = false) {
  map.fitBounds(box, { padding: padding(map, chosen), animate: false, ...(chosen && { maxZoom: 14.5 }) });
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
