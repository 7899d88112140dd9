import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, short, zoned } from "./format";
import { useDark } from "./theme";

/** One line of a chart. */
export interface Line {
  label: string;
  colour: string;
  values: (number | null)[];
  /** The upper and the lower edge of a band, next to each other. */
  band?: "upper" | "lower";
}

/** Colours of lines, with a contrast of 3:1 to the cards of both themes. */
export const colours = { blue: "#2f7ebc", red: "#d04216", ochre: "#b07d10", violet: "#9b6fc0" };

const shortest = 300; // s; minimum length of the time axis of a history

/**
 * The largest value that the scale of a history must reach. Rare peaks do not count, because they would flatten the rest of the
 * chart until they leave it after an hour. A line has rare peaks if its maximum is more than three times the 90th percentile of
 * its positive values. The last minute always counts.
 */
export function ceiling(times: number[], lines: Line[]): number {
  const recent = (times.at(-1) ?? 0) - 60;
  let top = 0;
  for (const { values } of lines) {
    const sorted = values.filter((v): v is number => v != null && v > 0).sort((a, b) => a - b);
    const common = sorted[Math.floor(0.9 * (sorted.length - 1))] ?? 0;
    const highest = sorted.at(-1) ?? 0;
    top = Math.max(top, highest > 3 * common ? common : highest);
    values.forEach((v, i) => {
      if (v != null && times[i] > recent) top = Math.max(top, v);
    });
  }
  return top;
}

/**
 * A line chart over time; `times` are seconds since 1970. `label` describes it to screen readers. The values at the pointer
 * are shown below it; without a pointer, those at the time `mark`, which has a vertical line, or the last ones. A history
 * (without `steps`) marks each peak above its scale with a triangle, and shows the value and time of the highest one.
 */
export function Chart(props: {
  label: string;
  unit: string;
  times: number[];
  lines: Line[];
  height?: number;
  steps?: boolean;
  mark?: number;
  restarts?: number[]; // times with a dashed vertical line
}) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>();
  const dark = useDark();
  const { times, lines, height = 150, unit, steps, mark, restarts = [] } = props;
  const shape = lines.map((l) => l.label).join() + unit + steps;
  const top = steps ? Number.POSITIVE_INFINITY : ceiling(times, lines);
  const scale = useRef({ times, top, mark, restarts });
  scale.current = { times, top, mark, restarts };
  const data = [times, ...lines.map((l) => l.values)] as uPlot.AlignedData;
  useEffect(() => {
    const element = host.current!; // captured, because the ref may be cleared before this effect is cleaned up
    const ink = getComputedStyle(element).color;
    const grid = { stroke: "rgb(128 128 128 / 0.25)", width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui" };
    chart.current = new uPlot(
      {
        width: element.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false },
        hooks: {
          setCursor: [(u) => setAt(u.cursor.idx)],
          draw: [
            (u) => markPeaks(u, scale.current.top, lines),
            (u) => scale.current.mark !== undefined && markTime(u, scale.current.mark, ink),
            (u) => {
              for (const t of scale.current.restarts) markTime(u, t, ink, 4);
            },
          ],
        },
        axes: [
          { ...axis, size: 26, values: (_, v) => v.map((t) => clock(1000 * t)), space: 70 },
          { ...axis, size: 50, values: (_, v) => v.map(short), space: 30 },
        ],
        scales: {
          x: {
            range: () => {
              const [min, max] = [scale.current.times[0], scale.current.times.at(-1) ?? 0];
              return [steps ? min : Math.min(min, max - shortest), max];
            },
          },
          y: {
            range: (_, min, max) => [
              Math.min(0, min ?? 0),
              Math.max(1, Math.min(max ?? 1, scale.current.top) * 1.05),
            ],
          },
        },
        bands: lines.flatMap((l, i) =>
          l.band === "upper" ? [{ series: [i + 1, i + 2] as [number, number], fill: `${l.colour}40` }] : [],
        ),
        series: [
          {},
          ...lines.map((l) => ({
            label: l.label,
            stroke: l.colour,
            width: l.band ? 0 : 2,
            points: { show: false },
            paths: steps ? uPlot.paths.stepped!({ align: 1 }) : undefined,
          })),
        ],
      },
      data,
      element,
    );
    const resized = new ResizeObserver(() => {
      if (element.isConnected) chart.current?.setSize({ width: element.clientWidth, height });
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      chart.current?.destroy();
    };
  }, [shape, height, dark]);
  useEffect(() => chart.current?.setData(data), [times, lines, mark]);
  const shown = at ?? (mark === undefined ? times.length - 1 : times.findLastIndex((t) => t <= mark));
  const time = at == null ? mark : times[at];
  let peak = { value: top, time: 0 };
  for (const { values } of lines) {
    values.forEach((v, i) => {
      if (v != null && v > peak.value) peak = { value: v, time: times[i] };
    });
  }
  return (
    <>
      <div class="chart" role="img" aria-label={props.label} ref={host} />
      <ul class="values">
        {lines.map(
          (l, i) =>
            l.band !== "lower" && (
              <li key={l.label}>
                <Swatch colour={l.band ? `${l.colour}80` : l.colour} />
                {l.label}{" "}
                {(!steps || l.values[shown] != null) && (
                  <b>
                    {l.band && l.values[shown] != null && `${short(lines[i + 1].values[shown] ?? 0)} to `}
                    {value(l.values[shown], unit)}
                  </b>
                )}
              </li>
            ),
        )}
        {peak.time > 0 && (
          <li class="note">
            ▲ up to <b>{value(peak.value, unit)}</b> at {clock(1000 * peak.time, true)}
          </li>
        )}
        <li class="note">{time !== undefined && times.length > 0 && `at ${zoned(1000 * time, !steps)}`}</li>
      </ul>
    </>
  );
}

/** Draws a triangle at the upper edge wherever a line leaves the scale. */
function markPeaks(u: uPlot, top: number, lines: Line[]) {
  const size = 5 * devicePixelRatio;
  const y = u.bbox.top;
  lines.forEach(({ colour }, line) => {
    u.ctx.fillStyle = colour;
    u.data[line + 1].forEach((v, i) => {
      if (v == null || v <= top) return;
      const x = u.valToPos(u.data[0][i], "x", true);
      u.ctx.beginPath();
      u.ctx.moveTo(x, y);
      u.ctx.lineTo(x - size, y + 2 * size);
      u.ctx.lineTo(x + size, y + 2 * size);
      u.ctx.fill();
    });
  });
}

/** Draws a vertical line at a time, with gaps of some pixels if `dash` is set. */
function markTime(u: uPlot, time: number, colour: string, dash = 0) {
  const x = Math.round(u.valToPos(time, "x", true));
  u.ctx.fillStyle = colour;
  const part = dash > 0 ? dash * devicePixelRatio : u.bbox.height;
  for (let y = 0; y < u.bbox.height; y += 2 * part) {
    u.ctx.fillRect(x, u.bbox.top + y, devicePixelRatio, Math.min(part, u.bbox.height - y));
  }
}

const value = (v: number | null | undefined, unit: string) =>
  v == null ? "–" : `${short(v)}${unit.startsWith("/") ? "" : " "}${unit}`;

/** The colour of a line, for a legend. */
export const Swatch = ({ colour, height = 8 }: { colour: string; height?: number }) => (
  <svg width="22" height="11" aria-hidden="true">
    <rect y={(11 - height) / 2} width="22" height={height} rx="2" fill={colour} />
  </svg>
);
