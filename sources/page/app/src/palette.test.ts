import { expect, test } from "vitest";
import { label, none, stepOf, steps } from "./palette";

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
});

test("the legend names every step", () => {
  for (const scale of ["relative", "absolute"] as const) {
    expect(new Set(steps.map((_, i) => label(i, scale))).size).toBe(steps.length);
  }
});
