import { describe, expect, test } from "vitest";
import { type Colour, dark, label, light, none, scales, stepOf, steps, widths } from "./palette";

test("a step is chosen by the share of the free-flow speed", () => {
  expect([0, 24.9, 25, 49, 50, 75, 89.9, 90, 120].map((v) => stepOf(v, 100, "relative"))).toEqual([
    0, 0, 1, 1, 2, 3, 3, 4, 4,
  ]);
});

test("a step is chosen by the speed in km/h", () => {
  expect([0, 15, 30, 50, 79, 80].map((v) => stepOf(v, 200, "absolute"))).toEqual([0, 1, 2, 3, 3, 4]);
});

test("a street without a speed, or without anything to compare it with, has no step", () => {
  expect(stepOf(Number.NaN, 50, "absolute")).toBe(none);
  expect(stepOf(0, 0, "relative")).toBe(none);
  expect(stepOf(50, Number.NaN, "relative")).toBe(none);
  expect(stepOf(50, Number.NaN, "usual")).toBe(none);
});

test("the legend names every step", () => {
  for (const scale of scales) {
    expect(new Set(light.steps.map((_, i) => label(i, scale))).size).toBe(steps);
  }
});

const linear = (c: Colour) => c.map((v) => (v <= 10 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
const times = (m: number[], [r, g, b]: number[]) =>
  [0, 3, 6].map((i) => m[i] * r + m[i + 1] * g + m[i + 2] * b);
const hex = (text: string) => [1, 3, 5].map((i) => Number.parseInt(text.slice(i, i + 2), 16)) as Colour;

/** Contrast ratio of WCAG 2. */
function contrast(a: Colour, b: Colour): number {
  const [x, y] = [a, b].map((c) => times([0.2126, 0.7152, 0.0722, 0, 0, 0, 0, 0, 0], linear(c))[0] + 0.05);
  return Math.max(x, y) / Math.min(x, y);
}

/** Linear colours as people with a colour vision deficiency see them (Machado, Oliveira, Fernandes 2009). */
const vision = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};

/** Oklab of a linear colour. */
function oklab(rgb: number[]): number[] {
  const inside = rgb.map((v) => Math.min(1, Math.max(0, v)));
  const lms = times(
    [
      0.4122214708, 0.5363325363, 0.0514459929, 0.2119034982, 0.6806995451, 0.1073969566, 0.0883024619,
      0.2817188376, 0.6299787005,
    ],
    inside,
  ).map(Math.cbrt);
  return times(
    [
      0.2104542553, 0.793617785, -0.0040720468, 1.9779984951, -2.428592205, 0.4505937099, 0.0259040371,
      0.7827717662, -0.808675766,
    ],
    lms,
  );
}

describe.each([
  ["light", light],
  ["dark", dark],
])("%s", (_, palette) => {
  const all = [...palette.steps, palette.none];

  test("jams stand out: they have a contrast of 3:1 to the land, more than free flow, and wider lines", () => {
    const contrasts = palette.steps.map((c) => contrast(c, hex(palette.land)));
    for (const jam of contrasts.slice(0, 3)) {
      expect(jam).toBeGreaterThanOrEqual(3);
      for (const free of contrasts.slice(3)) expect(free).toBeLessThan(jam + 0.3);
    }
    expect(Math.min(...contrasts)).toBeGreaterThanOrEqual(1.4);
    expect(contrasts[4]).toBe(Math.min(...contrasts));
    expect(widths).toEqual(widths.toSorted((a, b) => b - a));
  });

  test.each(Object.entries(vision))("colours differ with %s", (_, matrix) => {
    const seen = all.map((c) => oklab(times(matrix, linear(c))));
    seen.forEach((a, i) => {
      for (let j = 0; j < i; j++) {
        expect(Math.hypot(...a.map((v, k) => v - seen[j][k])), `${all[i]} and ${all[j]}`).toBeGreaterThan(
          0.095,
        );
      }
    });
  });
});
