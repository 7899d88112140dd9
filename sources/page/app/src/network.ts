import { fromBinary } from "@bufbuild/protobuf";
import { BinaryDecoder, Buffer, LocationReference } from "openlr-js";
import { type StreetForecast, StreetForecastResponseSchema } from "./gen/trafficd/v1/forecast_pb";

/** Geometry holds the streets in columns; a street is one direction, and its index is its place in them. */
export interface Geometry {
  street: Int32Array;
  fromnode: Int32Array;
  /** Segments as longitude and latitude of both ends, in degrees: 4 numbers each. */
  segments: Float64Array;
  /** Index of the street of each segment. */
  owner: Uint32Array;
  /** Streets whose OpenLR code could not be decoded; they are listed and searchable, but not drawn. */
  undecodable: number;
}

const decoder = new BinaryDecoder();

/** Returns longitudes and latitudes of the location reference points, in turn; none if the code is invalid. */
export function locationReferencePoints(code: string): number[] {
  try {
    const reference = decoder.decodeData(LocationReference.fromIdAndBuffer("", Buffer.from(code, "base64")));
    const points =
      reference && "_points" in reference
        ? (reference._points as { _longitude: number; _latitude: number }[])
        : [];
    return points.flatMap((p) => [p._longitude, p._latitude]);
  } catch {
    return [];
  }
}

/** Network collects the streets and speeds of successive layers. Streets keep their index while the page is open. */
export class Network {
  private index = new Map<string, number>();
  private street: number[] = [];
  private fromnode: number[] = [];
  private codes: string[] = [];
  private segments: number[] = [];
  private owner: number[] = [];
  private undecodable = 0;
  /** The highest speed seen for each street, in km/h. */
  freeFlow: number[] = [];

  get count(): number {
    return this.street.length;
  }

  /**
   * Takes the layer of one horizon and returns the speed of each street in km/h, NaN where the layer has no period.
   * `grown` says whether the geometry is another one. If a street has another OpenLR code, all streets begin anew.
   */
  take(layer: Uint8Array): { speeds: Float32Array; grown: boolean } {
    const streets = fromBinary(StreetForecastResponseSchema, layer).streetForecast;
    const known = (s: StreetForecast) => this.index.get(`${s.street}/${s.fromnode}`);
    if (streets.some((s) => (this.codes[known(s) ?? -1] ?? s.openLRcode) !== s.openLRcode)) {
      Object.assign(this, new Network());
    }
    const before = this.count;
    const found: [number, number][] = [];
    for (const s of streets) {
      const i = known(s) ?? this.add(s);
      const period = s.forecast[0];
      if (period && period.speedValid !== false) found.push([i, period.speed]);
    }
    const speeds = new Float32Array(this.count).fill(Number.NaN);
    for (const [i, speed] of found) {
      speeds[i] = speed;
      if (speed > this.freeFlow[i]) this.freeFlow[i] = speed;
    }
    return { speeds, grown: before === 0 || this.count > before };
  }

  private add(s: StreetForecast): number {
    const i = this.count;
    this.index.set(`${s.street}/${s.fromnode}`, i);
    this.street.push(s.street);
    this.fromnode.push(s.fromnode);
    this.codes.push(s.openLRcode);
    this.freeFlow.push(0);
    const p = locationReferencePoints(s.openLRcode);
    if (p.length < 4) this.undecodable++;
    for (let k = 0; k + 3 < p.length; k += 2) {
      this.segments.push(p[k], p[k + 1], p[k + 2], p[k + 3]);
      this.owner.push(i);
    }
    return i;
  }

  geometry(): Geometry {
    return {
      street: Int32Array.from(this.street),
      fromnode: Int32Array.from(this.fromnode),
      segments: Float64Array.from(this.segments),
      owner: Uint32Array.from(this.owner),
      undecodable: this.undecodable,
    };
  }
}
