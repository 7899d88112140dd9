import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
const { ceiling } = await import("./chart");

const step = 5; // s
const chart = (values: (number | null)[]) =>
  ceiling(
    values.map((_, i) => i * step),
    [{ label: "", colour: "", values }],
  );
const steady = (n: number) => Array.from({ length: n }, (_, i) => 3000 + (i % 7));

test("a short peak does not flatten a history", () => {
  expect(chart([null, 570_000, 310_000, ...steady(40)])).toBe(3006);
  expect(chart([null, ...steady(200), 570_000, ...steady(200)])).toBe(3006);
});

test("the last minute is always within the scale", () => {
  expect(chart([...steady(200), 570_000, ...steady(3)])).toBe(570_000);
});

test("what is usual is within the scale: bursts of a client that sends once a minute, and a rate that has risen", () => {
  const bursts = Array.from({ length: 240 }, (_, i) => (i % 12 === 0 ? 14_000 + i : 0));
  expect(chart([...bursts, ...steady(12).map(() => 0)])).toBe(14_228);
  expect(chart([...steady(200), ...steady(40).map((v) => 20 * v), ...steady(20)])).toBe(20 * 3006);
  expect(chart([1, 2])).toBe(2);
  expect(chart([])).toBe(0);
});
