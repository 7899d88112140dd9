import { useEffect, useState } from "preact/hooks";
import { Swatch } from "./chart";
import type { LayerState } from "./client";
import { duration, whole, zoned } from "./format";
import type { Geometry } from "./network";
import { css, label, type Palette, type Scale } from "./palette";

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

export function Legend(props: { colours: Palette; scale: Scale; onScale: (s: Scale) => void }) {
  const { colours, scale, onScale } = props;
  return (
    <fieldset class="legend">
      <legend>Speed</legend>
      <div class="row">
        {(["relative", "absolute"] as const).map((s) => (
          <label key={s}>
            <input type="radio" name="scale" checked={scale === s} onChange={() => onScale(s)} />{" "}
            {s === "relative" ? "of free flow" : "km/h"}
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
          no forecast
        </li>
      </ul>
      {scale === "relative" && (
        <p class="note">Free flow is the highest forecast speed seen for the street.</p>
      )}
    </fieldset>
  );
}

/** Finds a street by its id. Each repeated search finds its next direction. */
export function Search(props: { geometry: Geometry; selected: number; onFound: (index: number) => void }) {
  const [message, setMessage] = useState("");
  const { geometry, selected, onFound } = props;
  const find = (text: string) => {
    const ways: number[] = [];
    for (let i = 0; text !== "" && i < geometry.street.length; i++) {
      if (geometry.street[i] === Number(text)) ways.push(i);
    }
    if (ways.length === 0) {
      setMessage(`The layer has no street ${text}.`);
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
      <input name="street" inputMode="numeric" aria-label="Street id" placeholder="Street id" />
      <button type="submit">Find</button>
      <span class="note" role="status">
        {message}
      </span>
    </form>
  );
}
