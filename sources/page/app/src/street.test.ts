import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
const { explanation, measured } = await import("./StreetPanel");

const at = (minute: number) => new Date(Date.UTC(2026, 5, 10, 12, minute)).toISOString();

test("the last hour, the profile and the forecast with its bounds are lines over the same times", () => {
  const { times, lines } = measured({
    interval: 300,
    origin: at(10),
    basis: "own",
    points: [
      { start: at(0), measured: 41, profile: 40 },
      { start: at(5), profile: 40, earlier: 38 },
      { start: at(10), profile: 40, forecast: 39, low: 34, high: 44 },
    ],
  });
  expect(times.map((t) => t - times[0])).toEqual([0, 300, 600, 900]);
  expect(lines.map((l) => [l.label, l.band, l.values])).toEqual([
    ["8 of 10", "upper", [null, null, 44, 44]],
    ["lower bound", "lower", [null, null, 34, 34]],
    ["usual", undefined, [40, 40, 40, 40]],
    ["forecast an hour ago", undefined, [null, 38, null, null]],
    ["measured", undefined, [41, null, null, null]],
    ["forecast", undefined, [null, null, 39, 39]],
  ]);
});

test("a value that is carried forward is labelled as such", () => {
  const points = [
    { start: at(0), measured: 41 },
    { start: at(5), forecast: 41 },
  ];
  const { lines } = measured({ interval: 300, origin: at(5), basis: "last", points });
  expect(lines.map((l) => l.label)).toEqual(["measured", "last value carried forward"]);
});

test("bounds are explained only if there are any, and missing measurements are", () => {
  const forecast = { start: at(10), forecast: 39 };
  const f = (low?: number, ...points: { start: string; measured?: number }[]) =>
    explanation({ interval: 300, origin: at(10), basis: "own", points: [...points, { ...forecast, low }] });
  const now = { start: at(5), measured: 40 };
  expect(f(34, now)).toMatch(/detectors\. 8 of 10 readings are within the bounds\.$/);
  expect(f(undefined, now)).toMatch(/detectors\.$/);
  expect(f()).toMatch(/no usable reading in the last two hours/);
  expect(f(undefined, { start: at(0), measured: 40 }, { start: at(5) })).toMatch(
    /The last usable reading ended at \d\d:05;/,
  );
});
