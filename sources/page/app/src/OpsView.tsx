import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chart, colours } from "./chart";
import { ago, bytes, clock, duration, milliseconds, rate, short, whole, zoned } from "./format";
import { SickDetectors } from "./SickDetectors";
import type { Settings } from "./settings";
import type { Status } from "./status";
import { type Row, Rows } from "./Table";
import { Tail } from "./Tail";

const interval = 5_000; // ms; the same as in the daemon's history
const lag = 120; // s; a longer delay of a store is marked as bad, as in the alert TrafficdDeliveryLag

/** What an operator needs in the first ten seconds of an incident. */
export default function OpsView({ settings }: { settings: Settings }) {
  const [status, setStatus] = useState<Status>();
  const [restarts, setRestarts] = useState<number[]>([]); // s since 1970
  const [error, setError] = useState("");
  useEffect(() => {
    let gone = false;
    const poll = async () => {
      try {
        const response = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(interval) });
        if (!response.ok) throw new Error(`/status returned ${response.status}`);
        const next: Status = await response.json();
        document.title = `${next.host || location.host}: operations, trafficd`;
        setStatus((before) => {
          if (before && before.started !== next.started) {
            setRestarts((all) => [...all, Date.parse(next.started) / 1000]);
          }
          return { ...next, history: continued(before?.history, next.history) };
        });
        setError("");
      } catch (e) {
        setError(`The daemon cannot be reached: ${(e as Error).message}.`);
      }
      if (!gone) setTimeout(poll, interval);
    };
    void poll();
    return () => {
      gone = true;
    };
  }, []);
  if (!status) return <main class="ops">{error ? <p role="alert">{error}</p> : <p>Loading …</p>}</main>;
  const old = error && `${error} These figures are from ${zoned(status.time, true)}.`;
  return <Figures status={status} error={old} settings={settings} restarts={restarts} />;
}

type History = Status["history"];

/** The history with the points that the daemon had before it was restarted, up to an hour ago. */
export function continued(before: History | undefined, now: History): History {
  const gap = before ? Math.round((now.from - before.from) / now.step) : 0;
  if (!before || gap <= 0) return now;
  const points = (h: History) => Math.max(0, ...Object.values(h.series).map((v) => v.length));
  const first = Math.max(0, gap + points(now) - 3600 / now.step); // older ones are dropped
  const series: History["series"] = {};
  for (const name of new Set([...Object.keys(before.series), ...Object.keys(now.series)])) {
    const old = before.series[name] ?? [];
    const earlier = Array.from({ length: gap }, (_, i) => old[i] ?? null);
    series[name] = [...earlier, ...(now.series[name] ?? [])].slice(first);
  }
  return { from: now.from - (gap - first) * now.step, step: now.step, series };
}

/** A problem. The names of the runbook's sections in it are links to them. */
function Problem({ text }: { text: string }) {
  const parts = text.split(/(?<=see the runbook, )(Trafficd[A-Za-z]+)/); // each second one is a name
  return <p>{parts.map((part, i) => (i % 2 === 1 ? <a href={`runbook/${part}`}>{part}</a> : part))}</p>;
}

function Figures(props: { status: Status; error: string; settings: Settings; restarts: number[] }) {
  const { status: s, error, settings, restarts } = props;
  const measureTypes = settings.measureTypes ?? [];
  const state = error ? "not_ready" : s.state;
  const problems = error ? [error] : s.summary;
  const h = s.history;
  const times = (h.series.accepted ?? []).map((_, i) => h.from + i * h.step);
  const marks = restarts.filter((t) => t >= times[0]);
  const line = (series: string, label: string, colour: string) => ({
    label,
    colour,
    values: h.series[series] ?? [],
  });
  const dead = s.stores.reduce((n, x) => n + x.deadLetters, 0);
  const sick = s.registries.reduce((n, x) => n + x.sick, 0);
  const well = sick === 0 ? "All is well." : `All is well, except sick detectors: ${whole(sick)}.`;
  return (
    <main class={`ops ${error ? "old" : ""}`}>
      <p class="note instance">
        <b>{s.host || location.host}</b>, trafficd {s.version}, started {ago(s.started, s.time)}
        {marks.length > 0 && `, restarted at ${marks.map((t) => clock(1000 * t, true)).join(" and ")}`}
      </p>
      <section class={`summary ${state}`} aria-live="polite" aria-label="State">
        {problems.length === 0 ? <p>{well}</p> : problems.map((p) => <Problem key={p} text={p} />)}
      </section>
      <section class="figures" aria-label="Now">
        <Figure name="Measurements (1 min)" value={`${rate(s.rates.accepted + s.rates.rejected)}/s`} />
        <Figure name="Batches (1 min)" value={`${rate(s.rates.batches)}/s`} />
        <Figure
          name="Rejected (1 min)"
          value={`${rate(s.rates.rejected)}/s`}
          bad={s.rates.rejected > 0.05 * s.rates.accepted}
        />
        <Figure
          name="Response time, p50/p99"
          value={s.latency ? `${short(1000 * s.latency.p50)} / ${milliseconds(s.latency.p99)}` : "–"}
        />
        {s.journal.limit > 0 && ( // on disk
          <Figure
            name={`Journal, of ${bytes(s.journal.limit)}`}
            value={bytes(s.journal.bytes)}
            bad={s.journal.bytes > 0.8 * s.journal.limit}
          />
        )}
        <Figure name="Dead letters" value={short(dead)} bad={dead > 0} />
        <Figure
          name={s.forecast ? `Forecasts, ${whole(s.forecast.streets)} streets` : "Forecasts"}
          value={s.forecast?.age === undefined ? "–" : `${duration(s.forecast.age)} old`}
          bad={s.forecast?.stale}
        />
      </section>
      {settings.sites && <SickDetectors measureTypes={measureTypes} />}
      <section class="charts">
        <Card title="Measurements per second, every 5 s">
          <Chart
            label="Accepted and rejected measurements per second, last hour"
            unit="/s"
            times={times}
            restarts={marks}
            lines={[line("accepted", "accepted", colours.blue), line("rejected", "rejected", colours.red)]}
          />
        </Card>
        <Card title="Response time in ms, every 5 s">
          <Chart
            label="Median and 99th percentile of the response time of batches, last hour"
            unit="ms"
            times={times}
            restarts={marks}
            lines={[line("p50", "p50", colours.blue), line("p99", "p99", colours.ochre)]}
          />
        </Card>
        {s.stores.length > 0 && (
          <Card title="Measurements waiting for the stores">
            <Chart
              label="Measurements waiting for each store, last hour"
              unit="rows"
              times={times}
              restarts={marks}
              lines={s.stores.map((x, i) =>
                line(`lag_${x.name}`, x.name, [colours.blue, colours.ochre, colours.violet][i % 3]),
              )}
            />
          </Card>
        )}
      </section>
      <section class="tables">
        <Table
          title="Stores"
          head={["store", "waiting", "delay", "dead letters", "last error"]}
          numbers={3}
          rows={s.stores.map((x) => ({
            key: x.name,
            cells: [x.name, whole(x.rows), duration(x.seconds), whole(x.deadLetters), x.error ?? "none"],
            bad: x.error !== undefined || x.seconds > lag,
          }))}
          none="No store is enabled: accepted measurements are discarded."
        />
        <Table
          title="Clients, by key"
          head={["key", "batches", "accepted", "rejected", "last batch"]}
          numbers={3}
          rows={s.clients.map((c) => ({
            key: c.name,
            cells: [c.name, whole(c.batches), whole(c.accepted), whole(c.rejected), ago(c.lastBatch, s.time)],
          }))}
          none="No key has the “ingest” right."
        />
        <Table
          title="Rejections by code"
          head={["code", "total", "per second"]}
          numbers={2}
          rows={s.codes.map((c) => ({ key: c.code, cells: [c.code, whole(c.total), rate(c.perSecond)] }))}
          none="No measurement has been rejected."
        />
        <Table
          title="Detector registries"
          head={["product instance", "detectors", "doubtful", "age", "last error, or a warning"]}
          numbers={3}
          rows={s.registries.map((r) => ({
            key: r.productInstance,
            cells: [
              r.productInstance,
              whole(r.detectors),
              whole(r.doubtful),
              duration(r.age),
              r.error ?? r.warnings?.[0] ?? "none",
            ],
            bad: r.error !== undefined,
          }))}
          none="No registry is configured."
        />
        <Table
          title="Measure types"
          head={["measure type", "lowest value", "highest value", "unit"]}
          numbers={2}
          rows={measureTypes.map((t) => ({
            key: t.code,
            cells: [t.code, t.min?.toString() ?? "–", t.max?.toString() ?? "–", t.unit ?? "–"],
          }))}
          none="Every measure type and value is accepted (pipeline.validate.measure_types)."
        />
      </section>
      <Tail clients={s.clients.map((c) => c.name)} codes={s.codes.map((c) => c.code)} />
      <footer class="note">
        Totals are since the start of trafficd, rates and response times of the last minute. The same figures:{" "}
        <a href="status">/status</a>, <a href="metrics">/metrics</a>, <code>trafficctl top</code>.
      </footer>
    </main>
  );
}

const Card = ({ title, children }: { title: string; children: ComponentChildren }) => (
  <div class="card">
    <h2>{title}</h2>
    {children}
  </div>
);

const Figure = ({ name, value, bad }: { name: string; value: string; bad?: boolean }) => (
  <div class={`card figure ${bad ? "bad" : ""}`}>
    <span class="name">{name}</span>
    <span class="value">{value}</span>
  </div>
);

const Table = ({
  title,
  ...table
}: {
  title: string;
  head: string[];
  numbers: number;
  rows: Row[];
  none: string;
}) => (
  <Card title={title}>
    <Rows label={title} {...table} />
  </Card>
);
