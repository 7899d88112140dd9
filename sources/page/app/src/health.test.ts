import { expect, test } from "vitest";
import { evidence } from "./health";

const now = Date.parse("2026-06-10T12:34:00Z");
const at = (hours: number) => new Date(Date.parse("2026-06-10T12:00:00Z") - hours * 3_600_000).toISOString();

test("the chart has the complete hours of two days and of the week before", () => {
  const hours = [
    { start: at(0), count: 3, average: 9, detectors: 1 }, // not complete
    { start: at(1), count: 12, average: 57, detectors: 1 },
    { start: at(48), count: 12, average: 40, detectors: 1 },
    { start: at(169), count: 10, average: 61, detectors: 1 },
  ];
  const { times, now: values, before } = evidence("constant", hours, now);
  expect(times.length).toBe(48);
  expect([values[0], values[1], values[47]]).toEqual([40, null, 57]);
  expect(before[47]).toBe(61);
  expect(evidence("silent", hours, now).now.slice(-2)).toEqual([0, 12]);
});
