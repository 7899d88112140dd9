import { useEffect, useState } from "preact/hooks";
import { Chart, colours } from "./chart";
import { duration, whole, zoned } from "./format";
import {
  fetchEvidence,
  type Health,
  type Evidence as Hours,
  measured,
  type Sick,
  statesOf,
  useHealth,
  useSick,
} from "./health";
import type { MeasureType } from "./settings";
import type { Site } from "./sites";

const shown = 200; // entries of a list; the filter finds the others

const nameOf = (d: Sick) => d.detectorCode || `many detectors of ${d.productInstance}`;

/** The sick detectors of all product instances, for the view of operations. */
export function SickDetectors(props: { measureTypes: MeasureType[] }) {
  const health = useHealth("", true);
  const sick = useSick(health);
  const [filter, setFilter] = useState("");
  if (!health || health.instances.length === 0) return null; // no forecaster has tested them
  const found = sick.filter((d) => `${nameOf(d)} ${d.measureTypeCode} ${d.state}`.includes(filter.trim()));
  return (
    <section class="card health" aria-label="Health of detectors">
      <h2>{sick.length === 0 ? "Health of detectors" : `Sick detectors: ${count(sick)}`}</h2>
      <p class={health.problem ? "bad" : "note"}>
        {health.problem ? `${health.problem}.` : <Tested health={health} />}
      </p>
      {sick.length > 10 && (
        <input
          type="search"
          aria-label="Filter the sick detectors"
          placeholder="code, type or state"
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
      )}
      {found.length > 0 && (
        <section class="scroll" tabIndex={0} aria-label="Sick detectors">
          {found.slice(0, shown).map((d) => (
            <Entry
              key={`${d.productInstance} ${d.detectorCode} ${d.measureTypeCode} ${d.state}`}
              sick={d}
              measureTypes={props.measureTypes}
            />
          ))}
        </section>
      )}
      {found.length > shown && <p class="note">… and {whole(found.length - shown)} more.</p>}
    </section>
  );
}

/** How many detectors are sick, in words. */
function count(sick: Sick[]): string {
  const codes = new Set(
    sick.filter((d) => d.detectorCode).map((d) => `${d.productInstance}\n${d.detectorCode}`),
  );
  const feeds = sick.some((d) => !d.detectorCode) ? "a dead feed" : "";
  return [feeds, codes.size > 0 ? whole(codes.size) : ""].filter(Boolean).join(", and ");
}

const Tested = ({ health }: { health: Health }) => (
  <>
    {health.instances.map((i) => (
      <span key={i.productInstance}>
        {i.productInstance}: tested at {zoned(i.checkedAt)}
        {i.count === 0 ? ", all are well. " : ". "}
      </span>
    ))}
  </>
);

/** A sick detector with the reason. Opened, it shows the evidence. */
function Entry({ sick: d, measureTypes }: { sick: Sick; measureTypes: MeasureType[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <b class="code">{nameOf(d)}</b> {d.measureTypeCode},{" "}
        <span class="bad">{d.state.replace("_", " ")}</span> for{" "}
        {duration((Date.now() - Date.parse(d.since)) / 1000)}: {d.reason}
      </summary>
      {open && <Evidence base="" sick={d} measureTypes={measureTypes} />}
    </details>
  );
}

/** A chart of the hours that show why a detector is sick. */
function Evidence({
  base,
  sick: d,
  measureTypes,
}: {
  base: string;
  sick: Sick;
  measureTypes: MeasureType[];
}) {
  const [chart, setChart] = useState<Hours>();
  const [error, setError] = useState("");
  useEffect(() => {
    let gone = false;
    fetchEvidence(base, d).then(
      (c) => !gone && setChart(c),
      (e: Error) => !gone && setError(e.message),
    );
    return () => {
      gone = true;
    };
  }, [base, d]);
  const kind = measured(d.state);
  const unit = measureTypes.find((t) => d.measureTypeCode.startsWith(t.code.replace(/\*$/, "")))?.unit ?? "";
  return (
    <>
      <p class="note">The rule: {d.rule}. By hour, two days:</p>
      {error && <p class="bad">{error}</p>}
      {chart && (
        <Chart
          label={`${d.measureTypeCode} of ${nameOf(d)} by hour in the last two days, and a week before`}
          unit={kind === "average" ? unit : kind === "count" ? "measurements" : "detectors"}
          times={chart.times}
          lines={[
            { label: "now", colour: colours.red, values: chart.now },
            { label: "a week before", colour: colours.blue, values: chart.before },
          ]}
          height={120}
        />
      )}
    </>
  );
}

/** The sick detectors on the map, with a button for each that has a position. */
export function SickOnMap(props: { sick: Sick[]; onChosen: (code: string) => boolean }) {
  const { sick, onChosen } = props;
  if (sick.length === 0) return null;
  return (
    <details>
      <summary>Sick detectors (ringed): {count(sick)}</summary>
      <ul class="sick">
        {sick.slice(0, shown).map((d) => (
          <li key={`${d.productInstance} ${d.detectorCode} ${d.measureTypeCode} ${d.state}`}>
            <button
              type="button"
              class="code"
              disabled={!d.detectorCode}
              onClick={() => onChosen(d.detectorCode)}
            >
              {nameOf(d)}
            </button>{" "}
            {d.state.replace("_", " ")}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Why a site is sick. */
export const SickReasons = ({ site, sick }: { site: Site; sick: Sick[] }) => (
  <>
    {statesOf(site, sick).map((d) => (
      <p key={d.measureTypeCode + d.state} class="bad">
        {d.measureTypeCode}, {d.state.replace("_", " ")}: {d.reason}.
      </p>
    ))}
  </>
);
