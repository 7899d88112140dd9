import { expect, test } from "vitest";
import { readAddress, writeAddress } from "./address";
import { delay, worst } from "./delays";
import { along, joined, speedsAt } from "./roads";
import { staleness } from "./staleness";

test("the delay is the travel time beyond that of free traffic", () => {
  expect(delay(10, 50, 1000)).toBeCloseTo(6 - 1.2, 6);
  expect(delay(60, 50, 1000)).toBe(0);
  expect(delay(0, 50, 1000)).toBe(Number.POSITIVE_INFINITY);
  expect(delay(10, Number.NaN, 1000)).toBeNaN();
});

test("the worst streets have the highest delays, else the lowest shares of free flow, else the lowest speeds", () => {
  const f = (speed: number[], freeFlow: number[], length: number[], want: number[]) => {
    const of = (v: number[]) => Float32Array.from(v);
    expect(worst({ speed: of(speed), freeFlow: of(freeFlow), length: of(length) }, 2)).toEqual(want);
  };
  const none = [Number.NaN, Number.NaN, Number.NaN];
  f([10, 20, 60], [50, 50, 50], [100, 1000, 1000], [1, 0]);
  f([10, 20, 60], [50, 20, 50], none, [0]);
  f([30, 20, 60], none, none, [1, 0]);
  f(none, none, none, []);
  f([0, 20, 60], none, none, [0, 1]); // a closed street is the worst, not the only one
  f([0, 20, 60], [50, 50, 50], none, [0, 1]);
});

test("the address keeps the street, the time, the colours and the place", () => {
  const address = {
    street: "7/2",
    minutes: -30,
    colours: "usual",
    place: [10.25, 56.5, 13.5] as [number, number, number],
  };
  const hash = writeAddress("#map", address);
  expect(hash).toBe("#map?street=7/2&minutes=-30&colours=usual&place=10.25000,56.50000,13.50");
  expect(readAddress(hash)).toEqual(address);
  expect(writeAddress(hash, {})).toBe("#map");
  expect(writeAddress("", {})).toBe("");
  expect(readAddress("")).toEqual({});
  const typical = { weekday: 2, hour: 8 };
  expect(writeAddress("#map", { typical })).toBe("#map?typical=2/8");
  expect(readAddress("#map?typical=2/8")).toEqual({ typical });
  expect(readAddress("#map?typical=8/8")).toEqual({});
  expect(readAddress("#map?typical=2/24")).toEqual({});
  expect(readAddress("#map?place=a,b&minutes=x")).toEqual({});
});

test("streets follow the road where its course is known", () => {
  const geometry = {
    street: Int32Array.of(1, 2, 2),
    fromnode: Int32Array.of(5, 6, 7),
    segments: Float64Array.of(0, 0, 1, 1, 2, 2, 3, 3),
    owner: Uint32Array.of(0, 1),
    undecodable: 1,
  };
  const roads = joined(
    {
      list: "a",
      weekdays: [2],
      street: [2, 1, 9],
      fromnode: [6, 5, 1],
      name: ["Ring", "", "x"],
      detectors: [["b"], ["a"], []],
      geometry: [[2, 2, 2.5, 2, 3, 3], null, null],
    },
    geometry,
  );
  expect(roads.name).toEqual(["", "Ring", ""]);
  expect([...roads.column]).toEqual([1, 0, -1]);
  const line = along(geometry, roads);
  expect([...line.segments]).toEqual([0, 0, 1, 1, 2, 2, 2.5, 2, 2.5, 2, 3, 3]);
  expect([...line.owner]).toEqual([0, 1, 1]);
  expect(along(geometry, undefined)).toBe(geometry);

  const speeds = (list: string) => [
    ...speedsAt({ list, problem: "", measured: [10, null, 30], usual: [1, 2, 3] }, roads).measured,
  ];
  expect(speeds("a")).toEqual([Number.NaN, 10, Number.NaN]);
  expect(speeds("b")).toEqual([Number.NaN, Number.NaN, Number.NaN]); // the forecaster has other streets since
});

test("a layer without streets is not stale, but one whose streets have no forecast is", () => {
  const limits = { staleAfter: 60, nearest: 30, streets: 0 };
  expect(staleness({}, undefined, 0, limits)).toBe("");
  expect(staleness({}, undefined, 0, { ...limits, streets: 1 })).toContain("No street has");
  const until = { coveredUntil: "2026-01-01T01:00:00Z" };
  const now = Date.parse("2026-01-01T00:00:00Z");
  expect(staleness(until, 61, now, { ...limits, streets: 1 })).toContain("more than the limit of");
  expect(staleness(until, 59, now, { ...limits, streets: 1 })).toBe("");
});
