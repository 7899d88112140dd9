import { fromBinary } from "@bufbuild/protobuf";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Chart, colours } from "./chart";
import { fetchLayer } from "./client";
import { clock } from "./format";
import { type StreetForecast, StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";

/** All periods of one street, fetched when it is chosen and again when the layer changes. */
export function StreetPanel(props: {
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
    return () => {
      gone = true;
    };
  }, [base, apiKey, street, fromnode, arrived]);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => e.key === "Escape" && onClose();
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [onClose]);
  const line = useMemo(() => series(forecast), [forecast]);
  const periods = forecast?.forecast ?? [];
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
            lines={[{ label: "forecast speed", colour: colours.blue, values: line.speeds }]}
            steps
          />
          <dl>
            <dt>OpenLR code</dt>
            <dd>
              <code>{forecast.openLRcode}</code>
            </dd>
            <dt>Validity</dt>
            <dd>
              {periods.length} periods
              {periods.length > 0 && `, ${clock(periods[0].start)} to ${clock(periods.at(-1)!.end)}`}
            </dd>
            <dt>Time zone</dt>
            <dd>{periods[0]?.timezone ?? "–"}</dd>
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
