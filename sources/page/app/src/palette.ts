// The scale goes from red through orange to blue, so that people with any colour vision can distinguish its steps. A test
// checks the distances between the colours, and their contrast with the background.

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
    [74, 10, 48],
    [168, 30, 8],
    [180, 113, 0],
    [47, 134, 192],
    [18, 58, 134],
  ],
  none: [128, 128, 128],
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
    [240, 56, 63],
    [255, 150, 64],
    [255, 233, 160],
    [116, 205, 240],
    [74, 134, 240],
  ],
  none: [117, 125, 133],
  rim: [255, 255, 255],
  land: "#1b232c",
  sea: "#10161d",
  border: "#3d4a58",
  building: "#222c37",
  road: "#2b3643",
  text: "#8b97a3",
};

/** Lower bounds of the steps, as shares of the free-flow speed and in km/h. */
const bounds = { relative: [0, 0.25, 0.5, 0.75, 0.9], absolute: [0, 15, 30, 50, 80] };

export type Scale = keyof typeof bounds;

export const steps = bounds.relative.length;

/** The step of streets without a forecast. */
export const none = 255;

/** The step of a speed in km/h; `none` if there is no speed, or no free-flow speed to compare it with. */
export function stepOf(speed: number, freeFlow: number, scale: Scale): number {
  const value = scale === "absolute" ? speed : speed / freeFlow;
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
    scale === "relative" ? 100 * v : v,
  );
  const unit = scale === "relative" ? "%" : "km/h";
  if (step === 0) return `below ${to} ${unit}`;
  return step === steps - 1 ? `${from} ${unit} and more` : `${from} to ${to} ${unit}`;
}
