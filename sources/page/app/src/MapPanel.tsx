import { useEffect, useState } from "preact/hooks";
import { Swatch } from "./chart";
import type { LayerState } from "./client";
import { delay } from "./delays";
import {
  clock,
  duration,
  hourText,
  kmh,
  minutesOf,
  type WeekHour,
  weekdayName,
  weekHourText,
  whole,
  zoned,
} from "./format";
import type { StreetState } from "./Hover";
import type { Geometry } from "./network";
import { css, label, type Palette, type Scale, widths } from "./palette";
import type { Roads } from "./roads";
import type { SitesState } from "./sites";
import { staleness } from "./staleness";

/** Age and coverage of the layer, updated every second. A stale layer gets a banner across the map. */
export function Freshness(props: {
  state?: LayerState;
  staleAfter: number;
  nearest: number; // horizon in minutes
  error: string;
  streets: number;
  forecasts: number; // streets that have one, or a measurement
  kind: StreetState["kind"]; // of the shown speeds
  operator: boolean;
  onStale: (stale: boolean) => void;
}) {
  const { state, streets, forecasts, kind, operator, error, onStale } = props;
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
      {state && streets === 0 && !why ? (
        <p class="freshness" role="status">
          <b>No street has a current or future forecast.</b> Streets appear here with the next ones.{" "}
          {operator ? (
            <>
              The program that writes the forecasts has stopped, writes old ones, or has nothing to compute
              them from: see the runbook, <a href="runbook/TrafficdForecastsStale">TrafficdForecastsStale</a>.
            </>
          ) : (
            "If there are none in some minutes, tell the operator of this service."
          )}
        </p>
      ) : state ? (
        <p class="freshness">
          <b>
            {forecasts === streets ? whole(streets) : `${whole(forecasts)} of ${whole(streets)}`} streets
            {kind === "measured" && " measured"}
            {kind === "typical" && " with a typical speed"}
          </b>
          {age !== undefined && `, data ${duration(age)} old`}
          {state.coveredUntil && `, forecasts until ${zoned(state.coveredUntil)}`}
        </p>
      ) : (
        !error && <p class="freshness">Loading the forecast layer …</p>
      )}
    </>
  );
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

/** The hours of a day. */
export const hours = Array.from({ length: 24 }, (_, h) => h);

/** Chooses the time that the map shows: measured before now, forecast from now on, or an hour of a typical week. */
export function TimeSlider(props: {
  times: number[]; // minutes from now
  minutes: number;
  typical?: WeekHour; // shown instead
  problem: string; // why there are no speeds at that time
  playing: boolean;
  onPlay: () => void;
  onChange: (minutes: number) => void;
  onTypical?: (at?: WeekHour) => void; // without it, there are no typical speeds
  weekdays: number[]; // that have typical speeds
}) {
  const { times, minutes, typical, problem, playing, onPlay, onChange, onTypical, weekdays } = props;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 5_000);
    return () => clearInterval(timer);
  }, []);
  const at = (m: number) => 60_000 * (Math.floor(now / 60_000) + m);
  const far = Math.abs(minutes) < 120 ? `${Math.abs(minutes)} min` : `${Math.abs(minutes) / 60} h`;
  const said = minutes === 0 ? "now" : minutes < 0 ? `${far} ago, measured` : `in ${far}`;
  const values = typical ? hours : times;
  const last = values.length - 1;
  const marks = [...new Set([0, typical ? 12 : times.indexOf(0), last])].filter((i) => i >= 0);
  return (
    <div class="time">
      <div class="row">
        <button type="button" aria-pressed={playing} onClick={onPlay}>
          {playing ? "Pause" : "Play"}
        </button>
        <output>
          {typical ? (
            <>
              typical, <b>{weekHourText(typical)}</b>
            </>
          ) : (
            <>
              <b>{zoned(at(minutes))}</b> {said}
            </>
          )}
        </output>
      </div>
      <input
        type="range"
        aria-label="Time"
        aria-valuetext={typical ? `typical, ${weekHourText(typical)}` : `${clock(at(minutes))}, ${said}`}
        min={0}
        max={last}
        value={values.indexOf(typical ? typical.hour : minutes)}
        onInput={(e) => {
          const value = values[e.currentTarget.valueAsNumber];
          if (typical) onTypical?.({ ...typical, hour: value });
          else onChange(value);
        }}
      />
      <div class="marks" aria-hidden="true">
        {marks.map((i) => (
          <span key={i} style={{ "--at": last > 0 ? i / last : 0 }}>
            {typical ? hourText(hours[i]) : times[i] === 0 ? `now ${clock(at(0))}` : clock(at(times[i]))}
          </span>
        ))}
      </div>
      {onTypical && (
        <select
          aria-label="Day"
          value={typical?.weekday ?? 0}
          onChange={(e) => {
            const weekday = Number(e.currentTarget.value);
            onTypical(
              weekday > 0 ? { weekday, hour: typical?.hour ?? new Date(at(minutes)).getHours() } : undefined,
            );
          }}
        >
          <option value={0}>Today: measured and forecast</option>
          {hours.slice(1, 8).map((weekday) => (
            <option key={weekday} value={weekday} disabled={!weekdays.includes(weekday)}>
              Typical {weekdayName(weekday)}
              {!weekdays.includes(weekday) && " (not learned yet)"}
            </option>
          ))}
        </select>
      )}
      {problem && (
        <p class="note bad" role="status">
          {`Speeds are missing: ${problem}.`}
        </p>
      )}
    </div>
  );
}

/** The colours, of streets with forecasts and of the dots of sites. */
export function Legend(props: {
  colours: Palette;
  scale: Scale;
  choices: Scale[];
  onScale: (s: Scale) => void;
  kind: StreetState["kind"]; // of the shown speeds of streets
  streets: boolean;
  sites: boolean;
}) {
  const { colours, scale, choices, onScale, kind, streets, sites } = props;
  return (
    <fieldset class="legend">
      <legend>Speed</legend>
      <div class="row">
        {choices.map((s) => (
          <label key={s}>
            <input type="radio" name="scale" value={s} checked={scale === s} onChange={() => onScale(s)} />{" "}
            {scaleNames[s]}
          </label>
        ))}
      </div>
      <ul>
        {colours.steps.map((c, i) => (
          <li key={css(c)}>
            <Swatch colour={css(c)} height={4 + 4 * widths[i]} />
            {label(i, scale)}
          </li>
        ))}
        <li>
          <Swatch colour={css(colours.none)} height={5} />
          {!streets ? "no speed now" : sites || scale === "usual" ? "unknown" : missing[kind]}
        </li>
      </ul>
      <details class="note">
        <summary>About the colours</summary>
        {streets && scale === "relative" && (
          <p>Share of the speed of free traffic, which the forecasts contain for each street.</p>
        )}
        {streets && scale === "usual" && (
          <p>Share of what the street's detectors usually measure at this time of the week.</p>
        )}
        {streets && !choices.includes("relative") && (
          <p>The forecasts do not contain the speed of free traffic.</p>
        )}
        {sites && (
          <p>
            {streets && "Dots, visible from close up, are detectors. "}
            {scale !== "absolute"
              ? "Dots compare the measured speed with the usual one at this hour of the weekday. Without one, they show the slowest lane: below 15, 30, 50, 80 km/h and more."
              : "Dots show the slowest lane in the latest interval."}
          </p>
        )}
      </details>
    </fieldset>
  );
}

const missing = { forecast: "no forecast", measured: "no measurement", typical: "no typical value" };

const scaleNames = { relative: "of free flow", usual: "of usual", absolute: "km/h" };

/** The streets with the highest delays at some times. A click shows the street. */
export function WorstDelays(props: {
  lists: { minutes?: number; speed?: Float32Array; streets: number[] }[];
  freeFlow: Float32Array;
  length: Float32Array;
  selected: number;
  nameOf: (street: number) => string;
  onChosen: (street: number) => void;
}) {
  const { lists, freeFlow, length, selected, nameOf, onChosen } = props;
  const [which, setWhich] = useState(0);
  const { speed, streets } = lists[Math.min(which, lists.length - 1)];
  if (!speed) return null;
  const worth = (i: number) => {
    const d = delay(speed[i], freeFlow[i], length[i]);
    if (d === Number.POSITIVE_INFINITY) return "closed";
    if (d > 0) return `+${minutesOf(d)}`;
    return freeFlow[i] > 0 ? `${Math.round((100 * speed[i]) / freeFlow[i])} %` : "";
  };
  return (
    <section class="worst" aria-label="Worst delays">
      <div class="row">
        <h2>Worst delays</h2>
        {lists.length > 1 &&
          lists.map(({ minutes }, i) => (
            <button key={minutes} type="button" aria-pressed={which === i} onClick={() => setWhich(i)}>
              {minutes === 0 ? "now" : `in ${minutes} min`}
            </button>
          ))}
      </div>
      {streets.length === 0 ? (
        <p class="note">No street is slower than free traffic.</p>
      ) : (
        <ol>
          {streets.map((i) => (
            <li key={i}>
              <button
                type="button"
                aria-current={selected === i ? "true" : undefined}
                onClick={() => onChosen(i)}
              >
                <span class="name">{nameOf(i)}</span>
                <span>{speed[i] > 0 && kmh(speed[i])}</span>
                <b>{worth(i)}</b>
              </button>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** What a reader of the map must know. */
export function Notes(props: {
  geometry: Geometry;
  courses: boolean; // of some streets are known
  withBasemap: boolean;
  operator: boolean;
  error: string;
}) {
  const { geometry, courses, withBasemap, operator, error } = props;
  return (
    <>
      {geometry.undecodable > 0 && (
        <p class="note">{geometry.undecodable} streets have no valid OpenLR code and are not drawn.</p>
      )}
      {geometry.street.length > 0 && !courses && (
        <p class="note">
          Lines connect the location reference points of each OpenLR code; they do not follow the road.
        </p>
      )}
      {operator && !withBasemap && (
        <p class="note">
          For roads and water under the streets, set <code>ui.basemap</code> to a PMTiles archive of the
          region.
        </p>
      )}
      {error && <p class="note bad">{error}</p>}
    </>
  );
}

const mostFound = 50;

/**
 * Finds a street by its id, by a detector or by a part of its name, or a site by its code. Each repeated search finds the
 * next one, such as the street's next direction.
 */
export function Search(props: {
  geometry: Geometry;
  roads?: Roads;
  selected: number;
  onFound: (index: number) => void;
  onSite?: (code: string) => boolean; // reports whether the site exists; without it, there are no sites
}) {
  const [message, setMessage] = useState("");
  const { geometry, roads, selected, onFound, onSite } = props;
  const streets = geometry.street.length > 0 || !onSite;
  const what = [streets && "Street", roads && "name", onSite ? "site" : roads && "detector"]
    .filter(Boolean)
    .join(", ");
  const find = (text: string) => {
    const all = Array.from(geometry.street.keys());
    const word = text.toLowerCase();
    const ways = [
      () => all.filter((i) => geometry.street[i] === Number(text)),
      () => all.filter((i) => roads?.detectors[i].includes(text)),
      () => all.filter((i) => roads?.name[i].toLowerCase() === word),
      () => all.filter((i) => roads?.name[i].toLowerCase().includes(word)),
    ];
    let found: number[] = [];
    for (let n = 0; text !== "" && found.length === 0 && n < ways.length; n++) found = ways[n]();
    if (found.length === 0) {
      setMessage(onSite?.(text) ? "" : `There is no ${onSite ? "street or site" : "street"} ${text}.`);
      return;
    }
    const next = (found.indexOf(selected) + 1) % found.length;
    const one = new Set(found.map((i) => geometry.street[i])).size === 1;
    setMessage(found.length > 1 ? `${one ? "Direction" : "Result"} ${next + 1} of ${found.length}.` : "");
    onFound(found[next]);
  };
  const names = [...new Set(roads?.name)].filter((n) => n).slice(0, mostFound);
  return (
    <form
      class="row search"
      onSubmit={(e) => {
        e.preventDefault();
        find(String(new FormData(e.currentTarget).get("street")).trim());
      }}
    >
      <input
        name="street"
        inputMode={onSite || roads ? "text" : "numeric"}
        aria-label={what}
        placeholder={what}
        list={names.length > 0 ? "names" : undefined}
        autocomplete="off"
      />
      {names.length > 0 && (
        <datalist id="names">
          {names.map((n) => (
            <option key={n} value={n} />
          ))}
        </datalist>
      )}
      <button type="submit">Find</button>
      <span class="note" role="status">
        {message}
      </span>
    </form>
  );
}
