import { fromBinary } from "@bufbuild/protobuf";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Chart, colours, type Line } from "./chart";
import { fetchDetail, fetchLayer, type StreetDetail } from "./client";
import { clock, type WeekHour, weekHourText, zoned } from "./format";
import { type StreetForecast, StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";
import { Speed, type StreetState } from "./Hover";

/**
 * All periods of one street, fetched when it is chosen and again when the layer changes. If the daemon has a forecaster,
 * operators also see what the forecast is based on.
 */
export function StreetPanel(props: {
  base: string;
  apiKey: string;
  street: number;
  fromnode: number;
  detectors: string[];
  shown: StreetState; // at the chosen time, exactly what the map shows
  arrived: number;
  minutes: number; // from now
  typical?: WeekHour; // shown instead
  forecaster: boolean;
  onNext: () => void;
  onClose: () => void;
}) {
  const { base, apiKey, street, fromnode, detectors, shown, arrived, minutes, typical, forecaster } = props;
  const { onNext, onClose } = props;
  const [forecast, setForecast] = useState<StreetForecast>();
  const [detail, setDetail] = useState<StreetDetail>();
  const [message, setMessage] = useState("Loading …");
  useEffect(() => {
    let gone = false;
    fetchLayer(new URL(base, location.href).href, apiKey, { street }).then(
      ({ body }) => {
        if (gone) return;
        const all = fromBinary(StreetForecastResponseSchema, body!).streetForecast;
        const found = all.find((s) => s.street === street && s.fromnode === fromnode);
        setForecast(found);
        setMessage(found ? "" : "The street is no longer in the layer.");
      },
      (e: Error) => !gone && setMessage(e.message),
    );
    // Without details, the chart shows only the periods.
    if (forecaster) fetchDetail(base, street, fromnode).then((d) => !gone && setDetail(d));
    return () => {
      gone = true;
    };
  }, [base, apiKey, street, fromnode, arrived, forecaster]);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => e.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [onClose]);
  const chart = useMemo(() => (detail ? measured(detail) : periodsOf(forecast)), [forecast, detail]);
  const periods = forecast?.forecast ?? [];
  const at = Math.floor(Date.now() / 60_000) + minutes; // since 1970
  const named = !shown.name.startsWith("Street ");
  return (
    <section class="panel street" aria-label={`Street ${street}`}>
      <h2>
        <span>
          {named ? shown.name : `Street ${street}`}{" "}
          <small>
            {named && `street ${street} `}from node {fromnode}
          </small>
        </span>
        <button type="button" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </h2>
      <p class="shown">
        {typical ? weekHourText(typical) : clock(60_000 * at)}: <Speed of={shown} />
      </p>
      {message && <p role="status">{message}</p>}
      {forecast && (
        <>
          <Chart
            label={`${detail ? "Measured, usual and forecast" : "Forecast"} speed of street ${street}`}
            unit="km/h"
            times={chart.times}
            lines={chart.lines}
            mark={60 * at}
            steps
          />
          {detail && <p class="note">{explanation(detail)}</p>}
          <div class="row">
            <button type="button" onClick={onNext}>
              Next worst delay
            </button>
          </div>
          <dl>
            {detectors.length > 0 && (
              <>
                <dt>Detectors</dt>
                <dd>{detectors.join(", ")}</dd>
              </>
            )}
            <dt>OpenLR code</dt>
            <dd>
              <code>{forecast.openLRcode}</code>
            </dd>
            <dt>Validity</dt>
            <dd>
              {periods.length} periods
              {periods.length > 0 && `, ${clock(periods[0].start)} to ${zoned(periods.at(-1)!.end)}`}
            </dd>
            <dt>Time zone</dt>
            <dd>{periods[0]?.timezone ?? "–"}</dd>
          </dl>
        </>
      )}
    </section>
  );
}

const basisText = {
  own: "Based on the usual speeds and the recent readings of its detectors.",
  neighbours: "Based on usual speeds and its neighbours' readings, because a detector is sick.",
  profile: "Based on the usual speeds of its detectors, because a detector is sick.",
  pool: "Based on the usual speeds of all detectors, because its own have too little history.",
  last: "There is too little history: the last measured value is carried forward.",
  nothing: "The last measurement is too old for a forecast.",
};

/** What the forecast is based on, and why there are no measurements. There are no bounds before the third day of measurements. */
export function explanation(d: StreetDetail): string {
  const bounds = d.points.some((p) => p.low !== undefined);
  const last = d.points.findLast((p) => p.measured !== undefined);
  const end = last && Date.parse(last.start) + 1000 * d.interval;
  const gap = d.points.some(
    (p) => end !== undefined && Date.parse(p.start) >= end && Date.parse(p.start) < Date.parse(d.origin),
  );
  return [
    basisText[d.basis],
    bounds && "8 of 10 readings are within the bounds.",
    end === undefined
      ? "Its detectors sent no usable reading in the last two hours: none, or only repetitions of an earlier one."
      : gap && `The last usable reading ended at ${clock(end)}; later ones are missing, or repeat it.`,
  ]
    .filter(Boolean)
    .join(" ");
}

interface Series {
  times: number[];
  lines: Line[];
}

/** Lines of steps: each value at the start of its interval, and the last one again at the end. */
function stepped(starts: number[], end: number, lines: Line[]): Series {
  if (starts.length === 0) return { times: [], lines };
  return {
    times: [...starts, end],
    lines: lines.map((l) => ({ ...l, values: [...l.values, l.values.at(-1) ?? null] })),
  };
}

/** The periods of the layer. */
function periodsOf(s?: StreetForecast): Series {
  const periods = s?.forecast ?? [];
  const of = (key: "speed" | "speedLow" | "speedHigh") =>
    periods.map((p) => (p.speedValid === false ? null : (p[key] ?? null)));
  const lines: Line[] = [
    { label: "8 of 10", colour: colours.violet, values: of("speedHigh"), band: "upper" },
    { label: "lower bound", colour: colours.violet, values: of("speedLow"), band: "lower" },
    { label: "forecast speed", colour: colours.blue, values: of("speed") },
  ];
  return stepped(
    periods.map((p) => Date.parse(p.start) / 1000),
    Date.parse(periods.at(-1)?.end ?? "") / 1000,
    lines.filter((l) => l.values.some((v) => v !== null)),
  );
}

/** The last two hours as measured, the profile, and the forecast with its bounds and as it was an hour ago. */
export function measured(d: StreetDetail): Series {
  const starts = d.points.map((p) => Date.parse(p.start) / 1000);
  const line = (
    label: string,
    colour: string,
    key: Exclude<keyof StreetDetail["points"][0], "start">,
  ): Line => ({
    label,
    colour,
    values: d.points.map((p) => p[key] ?? null),
  });
  const lines: Line[] = [
    { ...line("8 of 10", colours.violet, "high"), band: "upper" },
    { ...line("lower bound", colours.violet, "low"), band: "lower" },
    line("usual", colours.ochre, "profile"),
    line("forecast an hour ago", "#7d8894", "earlier"),
    line("measured", colours.red, "measured"),
    line(d.basis === "last" ? "last value carried forward" : "forecast", colours.blue, "forecast"),
  ];
  // A kind without values has no line.
  return stepped(
    starts,
    starts[starts.length - 1] + d.interval,
    lines.filter((l) => l.values.some((v) => v !== null)),
  );
}
