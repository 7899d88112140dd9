import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";
import { locationReferencePoints, Network } from "./network";

const code = "CwV/OiHN2TvlAAA1ABM7FQ=="; // two location reference points in Lörrach

const layer = (...streets: { street: number; speed?: number; valid?: boolean; code?: string }[]) =>
  toBinary(
    StreetForecastResponseSchema,
    create(StreetForecastResponseSchema, {
      streetForecast: streets.map((s) => ({
        street: s.street,
        fromnode: 7,
        openLRcode: s.code ?? code,
        forecast: s.speed === undefined ? [] : [{ speed: s.speed, speedValid: s.valid }],
      })),
    }),
  );

test("an OpenLR code becomes the coordinates of its points", () => {
  const [x1, y1, x2, y2] = locationReferencePoints(code);
  expect(x1).toBeCloseTo(7.730116, 5);
  expect(y1).toBeCloseTo(47.536994, 5);
  expect(x2).toBeCloseTo(7.730646, 5);
  expect(y2).toBeCloseTo(47.537184, 5);
  expect(locationReferencePoints("nonsense")).toEqual([]);
  expect(locationReferencePoints("")).toEqual([]);
});

test("streets keep their index, and their highest speed, from layer to layer", () => {
  const n = new Network();
  let got = n.take(layer({ street: 1, speed: 50 }, { street: 2, speed: 30 }));
  expect(got.grown).toBe(true);
  expect(Array.from(got.speeds)).toEqual([50, 30]);
  got = n.take(layer({ street: 2, speed: 40 }, { street: 3 }));
  expect(got.grown).toBe(true);
  expect(Array.from(got.speeds)).toEqual([Number.NaN, 40, Number.NaN]);
  expect(n.freeFlow).toEqual([50, 40, 0]);
  expect(n.take(layer({ street: 1, speed: 20 })).grown).toBe(false);
  expect(n.freeFlow[0]).toBe(50);
});

test("a speed that is not valid is none", () => {
  const n = new Network();
  expect(Array.from(n.take(layer({ street: 1, speed: 50, valid: false })).speeds)).toEqual([Number.NaN]);
});

test("a code that cannot be decoded is counted, and the street is kept", () => {
  const n = new Network();
  n.take(layer({ street: 1, speed: 50, code: "AAAA" }, { street: 2, speed: 50 }));
  const g = n.geometry();
  expect(g.undecodable).toBe(1);
  expect(Array.from(g.owner)).toEqual([1]);
  expect(Array.from(g.street)).toEqual([1, 2]);
});

test("another code for a street begins anew", () => {
  const n = new Network();
  n.take(layer({ street: 1, speed: 50 }, { street: 2, speed: 50 }));
  const other = "CwV/XSHN4TvmBAFqAEg7Fg==";
  expect(n.take(layer({ street: 2, speed: 20, code: other })).grown).toBe(true);
  expect(Array.from(n.geometry().street)).toEqual([2]);
  expect(n.freeFlow).toEqual([20]);
});
