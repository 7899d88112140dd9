import { useEffect, useState } from "preact/hooks";
import { Swatch } from "./chart";
import type { LayerState } from "./client";
import { duration, whole, zoned } from "./format";
import type { Geometry } from "./network";
import { css, label, type Palette, type Scale } from "./palette";
import type { SitesState } from "./sites";

/** Age and coverage of the layer, updated every second. A stale layer gets a banner across the map. */
export function Freshness(props: {
  state?: LayerState;
  staleAfter: number;
  nearest: number; // horizon in minutes
  error: string;
  streets: number;
  forecasts: number; // streets that have one
  onStale: (stale: boolean) => void;
}) {
  const { state, streets, forecasts, error, onStale } = props;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const age = state?.age === undefined ? undefined : state.age + (now - state.received) / 1000;
  const why = error || (state ? staleness(state, age, now, props) : "");
  useEffect(() => onStale(why !== ""), [why !== "", onStale]);
  return (
    <>
      {why && (
        <p class="banner" role="alert">
          {!error && <strong>Stale forecasts. </strong>}
          {why}
        </p>
      )}
      {state ? (
        <p class="freshness">
          <b>{forecasts === streets ? whole(streets) : `${whole(forecasts)} of ${whole(streets)}`} streets</b>
          {age !== undefined && `, data ${duration(age)} old`}
          {state.coveredUntil && `, forecasts until ${zoned(state.coveredUntil)}`}
        </p>
      ) : (
        !error && <p class="freshness">Loading the forecast layer …</p>
      )}
    </>
  );
}

/** Why the layer is stale according to the daemon; empty if it is not. */
function staleness(
  state: LayerState,
  age: number | undefined,
  now: number,
  limits: { staleAfter: number; nearest: number; streets: number },
): string {
  if (!state.coveredUntil) return "No street has a current or future forecast.";
  if (Date.parse(state.coveredUntil) <= now + 60_000 * limits.nearest)
    return `The last one ends at ${zoned(state.coveredUntil)}, before the first horizon.`;
  if (age !== undefined && age > limits.staleAfter) {
    return `The newest data is ${duration(age)} old, more than the limit of ${duration(limits.staleAfter)}.`;
  }
  return "";
}

/** The sites on the map, and why their speeds are not current. */
export function SitesNote(props: { sites: SitesState; known: number }) {
  const { places, time, problem } = props.sites;
  const count = places.reduce((n, p) => n + p.sites.length, 0);
  return (
    <>
      {problem && (
        <p class="banner" role="alert">
          <strong>Stale sites. </strong>
          {`${problem}.`}
          {time && places.length > 0 && ` These speeds are from ${zoned(time, true)}.`}
        </p>
      )}
      {count > 0 && (
        <p class="freshness">
          <b>{whole(count)} sites</b>
          {count !== places.length && ` at ${whole(places.length)} places`}, {whole(props.known)} with a speed
          now
        </p>
      )}
    </>
  );
}

/** The colours, of streets with forecasts and of the dots of sites. */
export function Legend(props: {
  colours: Palette;
  scale: Scale;
  onScale: (s: Scale) => void;
  streets: boolean;
  sites: boolean;
}) {
  const { colours, scale, onScale, streets, sites } = props;
  const relative = streets ? "of free flow" : "of usual";
  return (
    <fieldset class="legend">
      <legend>Speed</legend>
      <div class="row">
        {(["relative", "absolute"] as const).map((s) => (
          <label key={s}>
            <input type="radio" name="scale" checked={scale === s} onChange={() => onScale(s)} />{" "}
            {s === "relative" ? relative : "km/h"}
          </label>
        ))}
      </div>
      <ul>
        {colours.steps.map((c, i) => (
          <li key={css(c)}>
            <Swatch colour={css(c)} />
            {label(i, scale)}
          </li>
        ))}
        <li>
          <Swatch colour={css(colours.none)} />
          {streets ? (sites ? "unknown" : "no forecast") : "no speed now"}
        </li>
      </ul>
      {streets && scale === "relative" && (
        <p class="note">Free flow is the highest forecast speed seen for the street.</p>
      )}
      {sites && (
        <p class="note">
          {scale === "relative"
            ? "Dots compare the measured speed with the usual one at this hour of the weekday. Without one, they show the slowest lane: below 15, 30, 50, 80 km/h and more."
            : "Dots show the slowest lane in the latest interval."}
        </p>
      )}
    </fieldset>
  );
}

/** Finds a street by its id, or a site by its code. Each repeated search finds the street's next direction. */
export function Search(props: {
  geometry: Geometry;
  selected: number;
  onFound: (index: number) => void;
  onSite?: (code: string) => boolean; // reports whether the site exists; without it, there are no sites
}) {
  const [message, setMessage] = useState("");
  const { geometry, selected, onFound, onSite } = props;
  const what = !onSite ? "Street id" : geometry.street.length > 0 ? "Street id or site" : "Site";
  const find = (text: string) => {
    const ways: number[] = [];
    for (let i = 0; text !== "" && i < geometry.street.length; i++) {
      if (geometry.street[i] === Number(text)) ways.push(i);
    }
    if (ways.length === 0) {
      setMessage(onSite?.(text) ? "" : `There is no ${onSite ? "street or site" : "street"} ${text}.`);
      return;
    }
    const next = (ways.indexOf(selected) + 1) % ways.length;
    setMessage(ways.length > 1 ? `Direction ${next + 1} of ${ways.length}.` : "");
    onFound(ways[next]);
  };
  return (
    <form
      class="row search"
      onSubmit={(e) => {
        e.preventDefault();
        find(String(new FormData(e.currentTarget).get("street")).trim());
      }}
    >
      <input name="street" inputMode={onSite ? "text" : "numeric"} aria-label={what} placeholder={what} />
      <button type="submit">Find</button>
      <span class="note" role="status">
        {message}
      </span>
    </form>
  );
}
