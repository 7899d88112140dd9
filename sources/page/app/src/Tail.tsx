import { useEffect, useState } from "preact/hooks";
import { clock } from "./format";
import type { Item } from "./status";
import { Rows } from "./Table";

const kept = 200; // lines

/** Follows a sample of the rejected measurements, while it is open. */
export function Tail(props: { clients: string[]; codes: string[] }) {
  const [open, setOpen] = useState(false);
  const [filter, setFilter] = useState({ client: "", code: "", detector: "" });
  const [items, setItems] = useState<Item[]>([]);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    if (!open) return;
    const stop = new AbortController();
    setItems([]);
    const query = new URLSearchParams(Object.entries(filter).filter(([, v]) => v !== ""));
    void follow(`rejections?${query}`, stop.signal, setTrouble, (found) =>
      setItems((old) => [...found.reverse(), ...old].slice(0, kept)),
    );
    return () => stop.abort();
  }, [open, filter]);
  const select = (name: "client" | "code", label: string, options: string[]) => (
    <label>
      {label}{" "}
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
        {select("client", "key", props.clients)}
        {select("code", "code", props.codes)}
        <label>
          detector{" "}
          <input
            value={filter.detector}
            onChange={(e) => setFilter({ ...filter, detector: e.currentTarget.value.trim() })}
          />
        </label>
        <span class="note">a sample, at most 50 per second</span>
      </div>
      {open && trouble && (
        <p class="bad" role="alert">
          {trouble}
        </p>
      )}
      {open && (
        <Rows
          label="Rejections"
          role="log"
          head={["time", "key", "code", "detector", "field", "message"]}
          rows={items.map((i) => ({
            key: `${i.batch}/${i.index}`,
            cells: [clock(i.time, true), i.client, i.code, i.detector ?? "", i.field ?? "", i.message ?? ""],
          }))}
          none="Nothing has been rejected since."
        />
      )}
    </section>
  );
}

/** Reads lines of JSON until the signal, and reconnects when the connection ends. */
async function follow(
  url: string,
  signal: AbortSignal,
  trouble: (why: string) => void,
  found: (items: Item[]) => void,
): Promise<void> {
  while (!signal.aborted) {
    try {
      const response = await fetch(url, { signal, cache: "no-store" });
      if (!response.ok) throw new Error((await response.text()).trim());
      trouble("");
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop()!;
        if (lines.length > 0) found(lines.map((l) => JSON.parse(l)));
      }
    } catch (e) {
      if (!signal.aborted) trouble(`Cannot follow the rejections; trying again: ${(e as Error).message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2_000));
  }
}
