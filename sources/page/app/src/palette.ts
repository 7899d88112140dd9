// The scale goes from dark red over orange to blue, so that people with any colour vision can tell its ends apart.

/** Steps of the scale from slow to fast. */
export const steps: { colour: [number, number, number]; relative: string; from: number }[] = [
  { colour: [122, 4, 3], relative: "below 25 %", from: 0 },
  { colour: [208, 66, 22], relative: "25 to 50 %", from: 0.25 },
  { colour: [245, 158, 48], relative: "50 to 75 %", from: 0.5 },
  { colour: [72, 170, 200], relative: "75 to 90 %", from: 0.75 },
  { colour: [38, 90, 170], relative: "above 90 %", from: 0.9 },
];

/** Lower bounds of the same steps in km/h. */
export const absolute = [0, 15, 30, 50, 80];

/** The step that stands for "no forecast". */
export const none = 255;
export const noneColour: [number, number, number] = [140, 140, 140];

export type Scale = "relative" | "absolute";

/** The step of a speed in km/h; `none` if there is no speed, or no free-flow speed to compare it with. */
export function stepOf(speed: number, freeFlow: number, scale: Scale): number {
  if (Number.isNaN(speed)) return none;
  const value = scale === "absolute" ? speed : speed / freeFlow;
  if (Number.isNaN(value)) return none;
  let step = 0;
  for (let i = 1; i < steps.length; i++) {
    if (value >= (scale === "absolute" ? absolute[i] : steps[i].from)) step = i;
  }
  return step;
}

export const css = ([r, g, b]: [number, number, number]) => `rgb(${r} ${g} ${b})`;

/** The label of a step in the legend. */
export function label(step: number, scale: Scale): string {
  if (scale === "relative") return steps[step].relative;
  const next = absolute[step + 1];
  return next === undefined ? `${absolute[step]} km/h and more` : `${absolute[step]} to ${next} km/h`;
}
