import type { Map as GlMap, MapMouseEvent } from "maplibre-gl";
import { useEffect, useRef, useState } from "preact/hooks";
import { kmh, minutesOf } from "./format";
import type { Streets } from "./streets";

/** What is shown of a street at the chosen time: speeds in km/h, the delay in minutes. Unknown numbers are NaN. */
export interface StreetState {
  name: string;
  speed: number;
  low: number;
  high: number;
  usual: number;
  freeFlow: number;
  delay: number;
  measured: number; // in the latest interval, if now is shown
  kind: "forecast" | "measured" | "typical"; // of the speed
}

const missing = {
  forecast: "no forecast for this time",
  measured: "not measured: no usable reading in this interval",
  typical: "no typical speed of this weekday",
};

/** A speed, and how it compares. */
export function Speed({ of: s }: { of: StreetState }) {
  if (Number.isNaN(s.speed))
    return (
      <>
        {missing[s.kind]}
        {!Number.isNaN(s.measured) && `, measured ${kmh(s.measured)}`}
      </>
    );
  const share = Math.round(100 * (s.speed / s.usual - 1));
  return (
    <>
      {s.speed === 0 ? <b>closed</b> : <b>{kmh(s.speed)}</b>}
      {!Number.isNaN(s.low) && !Number.isNaN(s.high) && ` (${Math.round(s.low)} to ${Math.round(s.high)})`}
      {s.kind !== "forecast" && ` ${s.kind}`}
      {!Number.isNaN(s.measured) && `, measured ${kmh(s.measured)}`}
      {s.speed > 0 &&
        s.usual > 0 &&
        `, ${share === 0 ? "as" : `${Math.abs(share)} % ${share < 0 ? "below" : "above"}`} usual`}
      {s.freeFlow > 0 && `, free flow ${kmh(s.freeFlow)}`}
      {s.speed > 0 && s.delay > 0 && `, delay ${minutesOf(s.delay)}`}
    </>
  );
}

/** Shows the street at the pointer. */
export function Hover(props: {
  map?: GlMap; // once it exists
  streets: Streets;
  describe: (street: number) => StreetState;
}) {
  const { map, streets } = props;
  const describe = useRef(props.describe);
  describe.current = props.describe;
  const [at, setAt] = useState({ street: -1, x: 0, y: 0 });
  useEffect(() => {
    if (!map) return;
    const m = map;
    let due = 0;
    const moved = (e: MapMouseEvent) => {
      cancelAnimationFrame(due);
      due = requestAnimationFrame(() => {
        const street = m.isMoving() ? -1 : streets.near(e.point, 8);
        m.getCanvas().style.cursor = street >= 0 ? "pointer" : "";
        setAt((before) =>
          street < 0 && before.street < 0 ? before : { street, x: e.point.x, y: e.point.y },
        );
      });
    };
    const left = () => {
      cancelAnimationFrame(due);
      setAt({ street: -1, x: 0, y: 0 });
    };
    m.on("mousemove", moved);
    m.on("mouseout", left);
    return () => {
      m.off("mousemove", moved);
      m.off("mouseout", left);
    };
  }, [map, streets]);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const { parentElement, offsetWidth, offsetHeight } = box.current ?? {};
    if (!box.current || !parentElement) return;
    const x = Math.min(at.x + 14, parentElement.clientWidth - offsetWidth! - 8);
    const y = at.y + 18 + offsetHeight! > parentElement.clientHeight ? at.y - offsetHeight! - 10 : at.y + 18;
    box.current.style.transform = `translate(${Math.max(8, x)}px, ${y}px)`;
  }, [at]);
  if (at.street < 0) return null;
  const street = describe.current(at.street);
  return (
    <div class="hover" ref={box} aria-hidden="true">
      <strong>{street.name}</strong>
      <span>
        <Speed of={street} />
      </span>
    </div>
  );
}
