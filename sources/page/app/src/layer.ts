import { BinaryReader } from "@bufbuild/protobuf/wire";
import {
  ForecastPeriodSchema,
  StreetForecastResponseSchema,
  StreetForecastSchema,
} from "./gen/trafficd/v1/forecast_pb";

const { streetForecast } = StreetForecastResponseSchema.field;
const { street, fromnode, openLRcode, forecast, length, freeFlowSpeed } = StreetForecastSchema.field;
const { speedValid, speed, speedLow, speedHigh, closed } = ForecastPeriodSchema.field;

/** The data of a street that the map needs. Numbers that the layer does not have are NaN. */
export interface Entry {
  street: number;
  fromnode: number;
  /** The OpenLR code as base64 text; a view. */
  code: Uint8Array;
  /** Speed of the first period in km/h; NaN without a period, or if the speed is not valid. 0 if the street is closed. */
  speed: number;
  low: number;
  high: number;
  freeFlow: number;
  length: number; // m
}

const none = new Uint8Array();
const unknown: Entry = {
  street: 0,
  fromnode: 0,
  code: none,
  speed: Number.NaN,
  low: Number.NaN,
  high: Number.NaN,
  freeFlow: Number.NaN,
  length: Number.NaN,
};

/**
 * Calls `visit` for each street of a layer, always with the same object: fromBinary, which creates objects, takes a second
 * for 100,000 streets. A test compares the two.
 */
export function readLayer(layer: Uint8Array, visit: (entry: Entry) => void): void {
  const r = new BinaryReader(layer);
  const entry: Entry = { ...unknown };
  while (r.pos < r.len) {
    const [field, type] = r.tag();
    if (field !== streetForecast.number) {
      r.skip(type, field);
      continue;
    }
    const end = r.uint32() + r.pos;
    let periods = 0;
    Object.assign(entry, unknown);
    while (r.pos < end) {
      const [field, type] = r.tag();
      if (field === street.number) entry.street = r.int32();
      else if (field === fromnode.number) entry.fromnode = r.int32();
      else if (field === openLRcode.number) entry.code = r.bytes();
      else if (field === length.number) entry.length = r.double();
      else if (field === freeFlowSpeed.number) entry.freeFlow = r.double();
      else if (field === forecast.number && periods++ === 0) readPeriod(r, entry);
      else r.skip(type, field);
    }
    visit(entry);
  }
}

function readPeriod(r: BinaryReader, entry: Entry): void {
  const end = r.uint32() + r.pos;
  let value = 0;
  let valid = true;
  let shut = false;
  while (r.pos < end) {
    const [field, type] = r.tag();
    if (field === speed.number) value = r.double();
    else if (field === speedValid.number) valid = r.bool();
    else if (field === speedLow.number) entry.low = r.double();
    else if (field === speedHigh.number) entry.high = r.double();
    else if (field === closed.number) shut = r.bool();
    else r.skip(type, field);
  }
  const known = valid ? value : Number.NaN;
  entry.speed = shut ? 0 : known;
}
