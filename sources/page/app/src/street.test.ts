import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
const { explanation, measured } = await import("./StreetPanel");

const at = (minute: number) => new Date(Date.UTC(2026, 5, 10, 12, minute)).toISOString();

test("the last hour, the profile and the forecast with its bounds are lines over the same times", () => {
  const { times, lines } = measured({
    interval: 300,
    basis: "own",
    points: [
      { start: at(0), measured: 41, profile: 40 },
      { start: at(5), profile: 40 },
      { start: at(10), profile: 40, forecast: 39, low: 34, high: 44 },
    ],
  });
  expect(times.map((t) => t - times[0])).toEqual([0, 300, 600, 900]);
  expect(lines.map((l) => [l.label, l.values])).toEqual([
    ["measured", [41, null, null, null]],
    ["usual (profile)", [40, 40, 40, 40]],
    ["forecast", [null, null, 39, 39]],
    ["lower bound", [null, null, 34, 34]],
    ["upper bound", [null, null, 44, 44]],
  ]);
});

test("a value that is carried forward is labelled as such", () => {
  const points = [
    { start: at(0), measured: 41 },
    { start: at(5), forecast: 41 },
  ];
  const { lines } = measured({ interval: 300, basis: "last", points });
  expect(lines.map((l) => l.label)).toEqual(["measured", "last value carried forward"]);
});

test("bounds are explained only if there are any", () => {
  const point = { start: at(0), forecast: 39 };
  const f = (low?: number) => explanation({ interval: 300, basis: "own", points: [{ ...point, low }] });
  expect(f(34)).toMatch(/detectors\. 8 of 10 readings are within the bounds\.$/);
  expect(f()).toMatch(/detectors\.$/);
});
