import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

/** One line of a chart. */
export interface Line {
  label: string;
  colour: string;
  values: (number | null)[];
}

/** A line chart over time; `times` are seconds since 1970. `label` describes it to screen readers. */
export function Chart(props: {
  label: string;
  unit: string;
  times: number[];
  lines: Line[];
  height?: number;
  steps?: boolean;
}) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const { times, lines, height = 150, unit, steps } = props;
  const shape = lines.map((l) => l.label).join() + unit + steps;
  useEffect(() => {
    const ink = getComputedStyle(host.current!).color;
    const grid = { stroke: "rgb(128 128 128 / 0.25)", width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui" };
    chart.current = new uPlot(
      {
        width: host.current!.clientWidth,
        height,
        legend: { show: lines.length > 1 },
        cursor: { y: false },
        axes: [
          { ...axis, values: (_, v) => v.map(clock), space: 70 },
          { ...axis, size: 56, values: (_, v) => v.map(short) },
        ],
        scales: { y: { range: (_, min, max) => [Math.min(0, min ?? 0), Math.max(1, (max ?? 1) * 1.05)] } },
        series: [
          { value: (_, t) => (t == null ? "–" : clock(t)) },
          ...lines.map((l) => ({
            label: `${l.label}`,
            stroke: l.colour,
            width: 2,
            paths: steps ? uPlot.paths.stepped!({ align: 1 }) : undefined,
            value: (_: uPlot, v: number | null) => (v == null ? "–" : `${short(v)} ${unit}`),
          })),
        ],
      },
      [times, ...lines.map((l) => l.values)] as uPlot.AlignedData,
      host.current!,
    );
    const resized = new ResizeObserver(() =>
      chart.current?.setSize({ width: host.current!.clientWidth, height }),
    );
    resized.observe(host.current!);
    return () => {
      resized.disconnect();
      chart.current?.destroy();
    };
  }, [shape, height]);
  useEffect(
    () => chart.current?.setData([times, ...lines.map((l) => l.values)] as uPlot.AlignedData),
    [times, lines],
  );
  return <div class="chart" role="img" aria-label={props.label} ref={host} />;
}

/** The local time of a second since 1970. */
const clock = (t: number) => new Date(1000 * t).toLocaleTimeString("en-GB");

/** A number with at most three digits and a prefix: 1.2k, 34M. */
export function short(v: number): string {
  if (!Number.isFinite(v)) return "–";
  for (const [prefix, size] of [
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    if (Math.abs(v) >= size) return `${Number((v / size).toPrecision(3))}${prefix}`;
  }
  return String(Number(v.toPrecision(3)));
}
