// The scale goes from red through orange to blue, so that people with any colour vision can distinguish its steps. A jam
// has strong ink and a wide line, free flow is pale and thin: who looks at the map looks for jams. A test checks the
// distances between the colours, and their contrast with the background.

export type Colour = [number, number, number];

/** The map colours of a theme. */
export interface Palette {
  /** From slow to fast. */
  steps: Colour[];
  none: Colour; // without a forecast
  rim: Colour; // of the chosen street
  land: string;
  sea: string;
  border: string;
  building: string;
  road: string;
  text: string;
}

export const light: Palette = {
  steps: [
    [88, 8, 52],
    [200, 28, 14],
    [217, 116, 0],
    [112, 168, 214],
    [173, 202, 226],
  ],
  none: [150, 146, 142],
  rim: [28, 36, 44],
  land: "#f7f6f2",
  sea: "#dfe8ef",
  border: "#b9b4aa",
  building: "#ebe8e0",
  road: "#ffffff",
  text: "#5b5f66",
};

export const dark: Palette = {
  steps: [
    [255, 71, 90],
    [255, 142, 40],
    [240, 204, 110],
    [92, 150, 190],
    [48, 72, 141],
  ],
  none: [114, 88, 108],
  rim: [255, 255, 255],
  land: "#1b232c",
  sea: "#10161d",
  border: "#3d4a58",
  building: "#222c37",
  road: "#2b3643",
  text: "#8b97a3",
};

/** Lower bounds of the steps: as shares of the free-flow speed, as shares of the usual speed, and in km/h. */
const bounds = {
  relative: [0, 0.25, 0.5, 0.75, 0.9],
  usual: [0, 0.5, 0.75, 0.9, 1.1],
  absolute: [0, 15, 30, 50, 80],
};

export type Scale = keyof typeof bounds;

export const scales = Object.keys(bounds) as Scale[];

export const steps = bounds.relative.length;

/** The step of streets without a forecast. */
export const none = 255;

/** Width of the line of each step and, last, of streets without a forecast, as a share of the width at the zoom level. */
export const widths = [1.6, 1.45, 1.2, 0.75, 0.6, 0.5];

/** The step of a speed in km/h; `none` if there is no speed, or nothing to compare it with. */
export function stepOf(speed: number, reference: number, scale: Scale): number {
  const value = scale === "absolute" ? speed : speed / reference;
  if (Number.isNaN(value)) return none;
  const from = bounds[scale];
  let step = 0;
  while (step + 1 < steps && value >= from[step + 1]) step++;
  return step;
}

export const css = ([r, g, b]: Colour) => `rgb(${r} ${g} ${b})`;

/** The label of a step in the legend. */
export function label(step: number, scale: Scale): string {
  const [from, to] = [bounds[scale][step], bounds[scale][step + 1]].map((v) =>
    scale === "absolute" ? v : Math.round(100 * v),
  );
  const unit = scale === "absolute" ? "km/h" : "%";
  if (step === 0) return `below ${to} ${unit}`;
  return step === steps - 1 ? `${from} ${unit} and more` : `${from} to ${to} ${unit}`;
}
