import { expect, test } from "vitest";
import { none } from "./palette";
import { type Site, siteStep, table, worst } from "./sites";

const site = (speed?: number, usual?: number, slowest?: number): Site => ({
  productInstance: "nl",
  detectorCode: `${speed} ${usual} ${slowest}`,
  speed,
  usual,
  slowest,
});

test("a dot compares the speed with the usual one, else it shows the slowest lane in km/h", () => {
  expect(siteStep(site(45, 100, 10), "relative")).toBe(1);
  expect(siteStep(site(45, undefined, 10), "relative")).toBe(0);
  expect(siteStep(site(undefined, 100, 85), "relative")).toBe(4);
  expect(siteStep(site(95, 100, 10), "absolute")).toBe(0);
  expect(siteStep(site(undefined, 100), "relative")).toBe(none);
  expect(siteStep(site(0, 100, 0), "relative")).toBe(0);
});

test("a place shows its slowest site, and one with a speed before others", () => {
  const slow = site(20, 100, 20);
  const sites = [site(), site(90, 100, 90), slow];
  expect(worst({ longitude: 5, latitude: 52, sites }, "relative")).toBe(slow);
});

test("the table has a row for each lane and class, and a column for each measure", () => {
  const at = (to: string, value: number) => ({ from: to, to, value });
  const now = "2026-11-28T17:02:00Z";
  expect(
    table([
      { measureTypeCode: "flow.lane1", values: [at("2026-11-28T17:01:00Z", 60), at(now, 120)] },
      { measureTypeCode: "speed", values: [at(now, 80.04)] },
      { measureTypeCode: "speed.lane1.lorry", values: [at("2026-11-28T17:01:00Z", 79)] },
    ]),
  ).toEqual({
    measures: ["speed", "flow"],
    until: now,
    rows: [
      { part: "", values: [{ value: 80.04, to: now }, undefined] },
      { part: "lane1", values: [undefined, { value: 120, to: now }] },
      { part: "lane1.lorry", values: [{ value: 79, to: "2026-11-28T17:01:00Z" }, undefined] },
    ],
  });
});
