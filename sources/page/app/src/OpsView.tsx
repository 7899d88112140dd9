import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chart, short } from "./chart";
import { duration } from "./MapView";
import type { Item, Status } from "./status";

const interval = 5_000; // ms; that of the daemon's history

/** What an operator wants in the first ten seconds of an incident. */
export function OpsView() {
  const [status, setStatus] = useState<Status>();
  const [error, setError] = useState("");
  useEffect(() => {
    let timer = 0;
    const poll = async () => {
      try {
        const response = await fetch("status", { cache: "no-store" });
        if (!response.ok) throw new Error(`/status answers ${response.status}`);
        setStatus(await response.json());
        setError("");
      } catch (e) {
        setError(`The daemon cannot be reached: ${(e as Error).message}. These figures are old.`);
      }
      timer = window.setTimeout(poll, interval);
    };
    void poll();
    return () => clearTimeout(timer);
  }, []);
  if (!status) return <main class="ops">{error ? <p role="alert">{error}</p> : <p>Loading …</p>}</main>;
  return <Figures status={status} error={error} />;
}

function Figures({ status: s, error }: { status: Status; error: string }) {
  const state = error ? "not_ready" : s.state;
  const problems = error ? [error] : s.summary;
  const h = s.history;
  const times = (h.series.accepted ?? []).map((_, i) => h.from + i * h.step);
  const history = (...names: [string, string, string][]) =>
    names.map(([name, label, colour]) => ({ label, colour, values: h.series[name] ?? [] }));
  return (
    <main class="ops">
      <section class={`summary ${state}`} aria-live="polite" aria-label="State">
        {problems.length === 0 ? <p>All is well.</p> : problems.map((p) => <p key={p}>{p}</p>)}
      </section>
      <section class="figures" aria-label="Now">
        <Figure name="Measurements" value={`${short(s.rates.accepted + s.rates.rejected)}/s`} />
        <Figure name="Batches" value={`${short(s.rates.batches)}/s`} />
        <Figure
          name="Rejected"
          value={`${short(s.rates.rejected)}/s`}
          bad={s.rates.rejected > 0.05 * s.rates.accepted}
        />
        <Figure
          name="207 within, p50 / p99"
          value={s.latency ? `${ms(s.latency.p50)} / ${ms(s.latency.p99)}` : "–"}
        />
        {s.journal && (
          <Figure
            name="Journal"
            value={`${bytes(s.journal.bytes)} of ${bytes(s.journal.limit)}`}
            bad={s.journal.bytes > 0.8 * s.journal.limit}
          />
        )}
        <Figure
          name="Dead letters"
          value={short(s.stores.reduce((n, x) => n + x.deadLetters, 0))}
          bad={s.stores.some((x) => x.deadLetters > 0)}
        />
      </section>
      <section class="charts">
        <Titled title="Measurements per second">
          <Chart
            label="Accepted and rejected measurements per second, last hour"
            unit="/s"
            times={times}
            lines={history(["accepted", "accepted", "#2f7ebc"], ["rejected", "rejected", "#d04216"])}
          />
        </Titled>
        <Titled title="Time to a 207">
          <Chart
            label="Median and 99th percentile of the time to a 207, last hour"
            unit="ms"
            times={times}
            lines={history(["p50", "p50", "#2f7ebc"], ["p99", "p99", "#b07d10"])}
          />
        </Titled>
        <Titled title="Waiting for the stores">
          <Chart
            label="Measurements that wait for each store, last hour"
            unit="rows"
            times={times}
            lines={s.stores.map((x, i) => ({
              label: x.name,
              colour: ["#2f7ebc", "#b07d10", "#7a5195"][i % 3],
              values: h.series[`lag_${x.name}`] ?? [],
            }))}
          />
        </Titled>
      </section>
      <section class="tables">
        <Table
          title="Stores"
          head={["store", "waiting", "delay", "last error"]}
          rows={s.stores.map((x) => [x.name, short(x.rows), duration(x.seconds), x.error ?? "none"])}
        />
        <Table
          title="Rejections by code"
          head={["code", "total", "per second"]}
          rows={s.codes.map((c) => [c.code, short(c.total), short(c.perSecond)])}
          none="No measurement was rejected."
        />
        <Table
          title="Clients"
          head={["client", "batches", "accepted", "rejected", "last batch"]}
          rows={s.clients.map((c) => [
            c.name,
            short(c.batches),
            short(c.accepted),
            short(c.rejected),
            ago(c.lastBatch, s.time),
          ])}
          none="No client has sent a batch."
        />
        <Table
          title="Detector registries"
          head={["product instance", "detectors", "age", "last error"]}
          rows={s.registries.map((r) => [
            r.productInstance,
            short(r.detectors),
            duration(r.age),
            r.error ?? "none",
          ])}
          none="No registry is configured."
        />
      </section>
      <Tail clients={s.clients.map((c) => c.name)} codes={s.codes.map((c) => c.code)} />
      <footer class="note">
        trafficd {s.version}, started {ago(s.started, s.time)}. The same figures: <a href="status">/status</a>
        , <a href="metrics">/metrics</a>, <code>trafficctl top</code>.
      </footer>
    </main>
  );
}

const Titled = ({ title, children }: { title: string; children: ComponentChildren }) => (
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

function Table(props: { title: string; head: string[]; rows: string[][]; none?: string }) {
  return (
    <div class="card">
      <h2>{props.title}</h2>
      {props.rows.length === 0 ? (
        <p class="note">{props.none}</p>
      ) : (
        <section class="scroll" tabIndex={0} aria-label={props.title}>
          <table>
            <thead>
              <tr>
                {props.head.map((h) => (
                  <th key={h} scope="col">
                    {h}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {props.rows.map((r) => (
                <tr key={r[0]}>
                  {r.map((c, i) => (
                    <td key={props.head[i]}>{c}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </div>
  );
}

const ms = (s: number) => `${short(s * 1000)} ms`;
const ago = (t: string | undefined, now: string) =>
  t ? `${duration((Date.parse(now) - Date.parse(t)) / 1000)} ago` : "never";

function bytes(n: number): string {
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ] as const) {
    if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  }
  return `${n} B`;
}

const kept = 200; // lines of the tail

/** Follows a sample of the rejected measurements, while it is open. */
function Tail(props: { clients: string[]; codes: string[] }) {
  const [open, setOpen] = useState(false);
  const [filter, setFilter] = useState({ client: "", code: "", detector: "" });
  const [items, setItems] = useState<Item[]>([]);
  useEffect(() => {
    if (!open) return;
    const stop = new AbortController();
    setItems([]);
    const query = new URLSearchParams(Object.entries(filter).filter(([, v]) => v !== ""));
    void follow(`rejections?${query}`, stop.signal, (found) =>
      setItems((old) => [...found.reverse(), ...old].slice(0, kept)),
    );
    return () => stop.abort();
  }, [open, filter]);
  const select = (name: "client" | "code", options: string[]) => (
    <label>
      {name}{" "}
      <select value={filter[name]} onChange={(e) => setFilter({ ...filter, [name]: e.currentTarget.value })}>
        <option value="">all</option>
        {options.map((o) => (
          <option key={o}>{o}</option>
        ))}
      </select>
    </label>
  );
  return (
    <section class="card tail">
      <h2>Rejections, live</h2>
      <div class="row">
        <button type="button" aria-pressed={open} onClick={() => setOpen(!open)}>
          {open ? "Stop" : "Follow"}
        </button>
        {select("client", props.clients)}
        {select("code", props.codes)}
        <label>
          detector{" "}
          <input
            value={filter.detector}
            onChange={(e) => setFilter({ ...filter, detector: e.currentTarget.value.trim() })}
          />
        </label>
        <span class="note">a sample, at most 50 per second</span>
      </div>
      {open && (
        <div class="scroll" tabIndex={0} role="log" aria-label="Rejections">
          <table>
            <thead>
              <tr>
                {["time", "client", "code", "detector", "field", "message"].map((h) => (
                  <th key={h} scope="col">
                    {h}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {items.map((i) => (
                <tr key={`${i.batch}/${i.index}`}>
                  <td>{new Date(i.time).toLocaleTimeString("en-GB")}</td>
                  <td>{i.client}</td>
                  <td>{i.code}</td>
                  <td>{i.detector}</td>
                  <td>{i.field}</td>
                  <td>{i.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Reads lines of JSON until the signal, and connects again when the connection ends. */
async function follow(url: string, signal: AbortSignal, found: (items: Item[]) => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const response = await fetch(url, { signal, cache: "no-store" });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop()!;
        if (lines.length > 0) found(lines.map((l) => JSON.parse(l)));
      }
    } catch {
      // the daemon is away, or the view was closed
    }
    await new Promise((resolve) => setTimeout(resolve, 2_000));
  }
}
