import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryDecoder, Buffer, LocationReference } from "openlr-js";
import { expect, test } from "vitest";
import { StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";
import { readLayer } from "./layer";
import { Network } from "./network";
import { linePoints } from "./openlr";

const code = "CwV/OiHN2TvlAAA1ABM7FQ=="; // two location reference points in Lörrach
const other = "CwV/XSHN4TvmBAFqAEg7Fg==";

interface Street {
  street: number;
  fromnode?: number;
  speed?: number;
  low?: number;
  high?: number;
  closed?: boolean;
  freeFlow?: number;
  length?: number;
  valid?: boolean;
  code?: string;
}

const layer = (...streets: Street[]) =>
  toBinary(
    StreetForecastResponseSchema,
    create(StreetForecastResponseSchema, {
      streetForecast: streets.map((s) => ({
        street: s.street,
        fromnode: s.fromnode ?? 7,
        openLRcode: s.code ?? code,
        freeFlowSpeed: s.freeFlow,
        length: s.length,
        forecast:
          s.speed === undefined
            ? []
            : [
                {
                  start: "a",
                  speed: s.speed,
                  speedValid: s.valid,
                  timezone: "UTC",
                  speedLow: s.low,
                  speedHigh: s.high,
                  basis: "own",
                  closed: s.closed,
                },
                { speed: 1 },
              ],
      })),
    }),
  );

const points = (text: string) => {
  const found: number[] = [];
  const ok = linePoints(new TextEncoder().encode(text), (lon, lat) => found.push(lon, lat));
  return ok ? found : [];
};

const nan = Number.NaN;

test("an OpenLR code becomes the coordinates of its points", () => {
  const [x1, y1, x2, y2] = points(code);
  expect(x1).toBeCloseTo(7.730116, 5);
  expect(y1).toBeCloseTo(47.536994, 5);
  expect(x2).toBeCloseTo(7.730646, 5);
  expect(y2).toBeCloseTo(47.537184, 5);
  for (const invalid of [
    "nonsense",
    "",
    "AAAA",
    code.slice(4),
    code.slice(0, -4),
    `${code}AAAA`,
    code.replace("/", "?"),
  ]) {
    expect(points(invalid), invalid).toEqual([]);
  }
});

test("OpenLR codes are decoded as openlr-js does", () => {
  let seed = 1;
  const random = () => {
    seed = Math.imul(seed, 1103515245) + 12345;
    return (seed >>> 16) & 0xff;
  };
  const decoder = new BinaryDecoder();
  for (let n = 0; n < 500; n++) {
    const inner = n % 5;
    const offsets = n % 3;
    const bytes = Array.from({ length: 16 + 7 * inner + offsets }, random);
    bytes[0] = 0x0b;
    bytes[1] &= 0x3f; // on the earth
    bytes[4] &= 0x3f;
    bytes[9 + 7 * inner + 6] = (bytes[9 + 7 * inner + 6] & 0x1f) | [0, 0x40, 0x60][offsets];
    const text = btoa(String.fromCharCode(...bytes));
    const want = (
      decoder.decodeData(LocationReference.fromIdAndBuffer("", Buffer.from(text, "base64"))) as unknown as {
        _points: { _longitude: number; _latitude: number }[];
      }
    )._points.flatMap((p) => [p._longitude, p._latitude]);
    const got = points(text);
    expect(got.length).toBe(want.length);
    got.forEach((v, i) => {
      expect(v).toBeCloseTo(want[i], 9);
    });
  }
});

test("a layer is read as fromBinary does", () => {
  const bytes = layer(
    { street: 1, speed: 50 },
    { street: -2, fromnode: -9 },
    { street: 3, speed: 0, valid: true },
    { street: 4, speed: 9, valid: false },
    { street: 5, speed: 40, low: 30, high: 50, freeFlow: 60, length: 700, closed: false },
  );
  const found: unknown[] = [];
  readLayer(bytes, (s) =>
    found.push([
      s.street,
      s.fromnode,
      new TextDecoder().decode(s.code),
      s.speed,
      s.low,
      s.high,
      s.freeFlow,
      s.length,
    ]),
  );
  expect(found).toEqual(
    fromBinary(StreetForecastResponseSchema, bytes).streetForecast.map((s) => {
      const first = s.forecast[0];
      return [
        s.street,
        s.fromnode,
        s.openLRcode,
        !first || first.speedValid === false ? nan : first.speed,
        first?.speedLow ?? nan,
        first?.speedHigh ?? nan,
        s.freeFlowSpeed ?? nan,
        s.length ?? nan,
      ];
    }),
  );
  expect(() => readLayer(bytes.subarray(0, bytes.length - 3), () => {})).toThrow();
});

test("streets keep their index from layer to layer, and have the free flow of the latest", () => {
  const n = new Network();
  let got = n.take(
    0,
    layer({ street: 1, speed: 50, low: 40, freeFlow: 70, length: 300 }, { street: 2, speed: 30 }),
    false,
  );
  expect(got.grown).toBe(true);
  expect([...got.speed]).toEqual([50, 30]);
  expect([...got.low]).toEqual([40, nan]);
  got = n.take(30, layer({ street: 2, speed: 80, high: 90, freeFlow: 60 }, { street: 3 }), false);
  expect(got.grown).toBe(true);
  expect([...got.speed]).toEqual([nan, 80, nan]);
  expect([...got.high]).toEqual([nan, 90, nan]);
  expect(n.freeFlow, "not the highest speed").toEqual([70, 60, nan]);
  expect(n.length).toEqual([300, nan, nan]);
  expect(n.take(0, layer({ street: 1, speed: 20, freeFlow: 65 }), false).grown).toBe(false);
  expect(n.freeFlow).toEqual([65, 60, nan]);
});

test("a closed street has no speed left", () => {
  expect([...new Network().take(0, layer({ street: 1, speed: 50, closed: true }), false).speed]).toEqual([0]);
  const unknown = { street: 1, speed: 50, valid: false, closed: true };
  expect([...new Network().take(0, layer(unknown), false).speed]).toEqual([0]);
});

test("changes replace streets, and leave the others as they are", () => {
  const n = new Network();
  n.take(0, layer({ street: 1, speed: 50 }, { street: 2, speed: 30 }, { street: 3, speed: 60 }), false);
  n.take(30, layer({ street: 1, speed: 10 }), false);
  const got = n.take(
    0,
    layer({ street: 2, speed: 20, code: "" }, { street: 3, code: "" }, { street: 4, speed: 70 }),
    true,
  );
  expect(n.geometry().undecodable, "an empty code is unchanged").toBe(0);
  expect([...got.speed]).toEqual([50, 20, nan, 70]);
  expect(got.grown).toBe(true);
  expect([...n.take(30, layer({ street: 4, speed: 5 }), true).speed]).toEqual([10, nan, nan, 5]);
  expect([...n.take(0, layer({ street: 4, speed: 5 }), false).speed], "a whole layer").toEqual([
    nan,
    nan,
    nan,
    5,
  ]);
  expect([...n.geometry().owner]).toEqual([0, 1, 2, 3]);
});

test("the directions of a street are different streets", () => {
  const n = new Network();
  const both = layer(
    { street: 1, fromnode: 1, speed: 50 },
    { street: 1, fromnode: 2, speed: 30 },
    { street: 1, fromnode: 3, speed: 20 },
  );
  n.take(0, both, false);
  expect(n.take(0, both, false).grown).toBe(false);
  expect([...n.geometry().fromnode]).toEqual([1, 2, 3]);
  expect([...n.take(0, layer({ street: 1, fromnode: 2, speed: 5 }), true).speed]).toEqual([50, 5, 20]);
});

test("a speed that is not valid is none", () => {
  const n = new Network();
  expect([...n.take(0, layer({ street: 1, speed: 50, valid: false }), false).speed]).toEqual([nan]);
});

test("a code that cannot be decoded is counted, and the street is kept", () => {
  const n = new Network();
  n.take(0, layer({ street: 1, speed: 50, code: "AAAA" }, { street: 2, speed: 50 }), false);
  const g = n.geometry();
  expect(g.undecodable).toBe(1);
  expect([...g.owner]).toEqual([1]);
  expect([...g.street]).toEqual([1, 2]);
});

test("a street with another code is drawn elsewhere", () => {
  const n = new Network();
  n.take(0, layer({ street: 1, speed: 50 }, { street: 2, speed: 50 }, { street: 3, speed: 50 }), false);
  expect(n.take(0, layer({ street: 2, speed: 20, code: other }), true).grown).toBe(true);
  const g = n.geometry();
  expect([...g.street]).toEqual([1, 2, 3]);
  expect([...g.owner]).toEqual([0, 2, 1]);
  expect([...g.segments.slice(8)]).toEqual(points(other));
});

test("a street whose code was removed is no longer drawn", () => {
  const n = new Network();
  n.take(0, layer({ street: 1, speed: 50 }, { street: 2, speed: 50 }), false);
  expect(n.take(0, layer({ street: 1, speed: 50, code: "" }, { street: 2, speed: 50 }), false).grown).toBe(
    true,
  );
  expect(n.geometry().undecodable).toBe(1);
  expect([...n.geometry().owner]).toEqual([1]);
});
