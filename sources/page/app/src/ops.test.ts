import { expect, test, vi } from "vitest";
import { rate } from "./format";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
const { continued } = await import("./OpsView");

test("the history continues after a restart of the daemon, with a gap while it was down", () => {
  const before = { from: 100, step: 5, series: { accepted: [1, 2, 3], gone: [7, 8, 9] } };
  const now = { from: 125, step: 5, series: { accepted: [4] } };
  expect(continued(before, now)).toEqual({
    from: 100,
    step: 5,
    series: { accepted: [1, 2, 3, null, null, 4], gone: [7, 8, 9, null, null] },
  });
  expect(continued(undefined, now)).toBe(now);
});

test("the history covers an hour", () => {
  const before = { from: 0, step: 5, series: { accepted: new Array(700).fill(1) } };
  const now = { from: 3500, step: 5, series: { accepted: new Array(40).fill(2) } };
  const got = continued(before, now);
  expect(got.series.accepted.length).toBe(720);
  expect(got.from).toBe(100);
  expect(got.series.accepted.slice(-41)).toEqual([1, ...new Array(40).fill(2)]);
});

test("rates have sensible digits", () => {
  expect([0, 0.004, 0.0333, 1.234, 9.96, 12.34, 999.4, 1234].map(rate)).toEqual([
    "0",
    "0",
    "0.033",
    "1.2",
    "10",
    "12",
    "999",
    "1.23k",
  ]);
});
