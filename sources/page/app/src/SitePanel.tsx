import { useEffect, useMemo, useState } from "preact/hooks";
import { Chart, colours, type Line } from "./chart";
import { clock, zoned } from "./format";
import type { Sick } from "./health";
import type { Scale } from "./palette";
import { SickReasons } from "./SickDetectors";
import type { MeasureType } from "./settings";
import { fetchHour, type Place, type Series, type Site, table, worst } from "./sites";
import { Rows } from "./Table";

/** The sites at a place: their speeds now, the last hour, and the latest values by lane and class. */
export function SitePanel(props: {
  base: string;
  place: Place;
  sick: Sick[];
  scale: Scale;
  measureTypes: MeasureType[];
  onClose: () => void;
}) {
  const { base, place, sick, scale, measureTypes, onClose } = props;
  const [code, setCode] = useState(() => worst(place, scale).detectorCode);
  const site = place.sites.find((s) => s.detectorCode === code) ?? place.sites[0];
  const [series, setSeries] = useState<Series[]>([]);
  const [message, setMessage] = useState("Loading …");
  useEffect(() => {
    let gone = false;
    fetchHour(base, site).then(
      (all) => {
        if (gone) return;
        setSeries(all);
        setMessage(all.length > 0 ? "" : "No measurement in the last hour.");
      },
      (e: Error) => !gone && setMessage(e.message),
    );
    return () => {
      gone = true;
    };
  }, [base, site.productInstance, site.detectorCode, site.measuredUntil]);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => e.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [onClose]);
  const chart = useMemo(() => speeds(series), [series]);
  const latest = useMemo(() => table(series), [series]);
  return (
    <section class="panel street" aria-label={`Site ${site.detectorCode}`}>
      <h2>
        Site <span class="code">{site.detectorCode}</span>
        <button type="button" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </h2>
      {place.sites.length > 1 && (
        <label class="row">
          {place.sites.length} sites at this place
          <select
            class="code"
            value={site.detectorCode}
            onChange={(e) => {
              setCode(e.currentTarget.value);
              setSeries([]);
              setMessage("Loading …");
            }}
          >
            {place.sites.map((s) => (
              <option key={s.productInstance + s.detectorCode} value={s.detectorCode}>
                {s.detectorCode}
              </option>
            ))}
          </select>
        </label>
      )}
      <SickReasons site={site} sick={sick} />
      <Now site={site} />
      {message && <p role="status">{message}</p>}
      {chart.times.length > 0 && (
        <Chart
          label={`Measured speeds of site ${site.detectorCode} in the last hour`}
          unit="km/h"
          times={chart.times}
          lines={chart.lines}
        />
      )}
      {latest.rows.length > 0 && (
        <Rows
          label="Latest values by lane and class"
          head={["lane, class", ...latest.measures.map((m) => `${m}${unitOf(m, measureTypes)}`)]}
          numbers={latest.measures.length}
          rows={latest.rows.map(({ part, values }) => ({
            key: part,
            cells: [
              part || "carriageway",
              ...values.map((v) =>
                v ? exact(v.value) + (v.to < latest.until ? ` (${clock(v.to)})` : "") : "–",
              ),
            ],
          }))}
          none=""
        />
      )}
    </section>
  );
}

function Now({ site: s }: { site: Site }) {
  const kmh = (v: number) => `${exact(v)} km/h`;
  if (s.slowest === undefined && s.speed === undefined) return <p>No speed in the last 15 minutes.</p>;
  return (
    <p>
      {s.speed !== undefined ? (
        <>
          <b>{kmh(s.speed)}</b>
          {s.usual !== undefined && `, usually ${kmh(s.usual)} at this hour`}, slowest lane {kmh(s.slowest!)}
        </>
      ) : (
        <>
          <b>{kmh(s.slowest!)}</b> on the slowest lane
        </>
      )}
      {s.measuredUntil && `, until ${zoned(s.measuredUntil)}`}.
    </p>
  );
}

/** A measured value: 1,500 or 70.2. */
const exact = (v: number) => v.toLocaleString("en", { maximumFractionDigits: 1 });

const unitOf = (measure: string, types: MeasureType[]) => {
  const unit = types.find((t) => t.code.replace(/[.*]+$/, "") === measure)?.unit;
  return unit ? ` (${unit})` : "";
};

/** The speeds of the last hour. Lines are whole lanes and the carriageway; without those, the classes that are there. */
export function speeds(all: Series[]): { times: number[]; lines: Line[] } {
  const speeds = all.filter((s) => s.measureTypeCode.split(".")[0] === "speed");
  const parts = (s: Series) => s.measureTypeCode.split(".").length;
  const whole = speeds.filter((s) => parts(s) <= 2);
  const chosen = (whole.length > 0 ? whole : speeds).slice(0, lineColours.length);
  const times = [...new Set(chosen.flatMap((s) => s.values.map((v) => Date.parse(v.to) / 1000)))].sort(
    (a, b) => a - b,
  );
  return {
    times,
    lines: chosen.map((s, i) => {
      const values = new Map(s.values.map((v) => [Date.parse(v.to) / 1000, v.value]));
      return {
        label: s.measureTypeCode.slice("speed.".length) || "carriageway",
        colour: lineColours[i],
        values: times.map((t) => values.get(t) ?? null),
      };
    }),
  };
}

const lineColours = [colours.blue, colours.red, colours.ochre, colours.violet, "#4f9a5d", "#7d8894"];
