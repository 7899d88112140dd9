import { type Entry, readLayer } from "./layer";
import { linePoints } from "./openlr";

/** Geometry holds the streets in columns. A street is one direction, and its index is its position in the columns. */
export interface Geometry {
  street: Int32Array;
  fromnode: Int32Array;
  /** Segments as longitude and latitude of both ends, in degrees: 4 numbers each. */
  segments: Float64Array;
  /** Index of the street of each segment. */
  owner: Uint32Array;
  /** Streets whose OpenLR code cannot be decoded; they are listed and searchable, but not drawn. */
  undecodable: number;
}

/** The speeds of a layer by street, in km/h; NaN where the layer has none. */
export interface Speeds {
  speed: Float32Array;
  low: Float32Array;
  high: Float32Array;
}

/** Network collects the streets and speeds of successive layers. Streets keep their index while the page is open. */
export class Network {
  private first = new Map<number, number>(); // index of a street's first direction
  private next: number[] = []; // index of its next direction, -1 if there is none
  private street: number[] = [];
  private fromnode: number[] = [];
  private codes: number[] = []; // hashes
  private drawn: boolean[] = [];
  private segments: number[] = [];
  private owner: number[] = [];
  private speeds = new Map<number, number[]>(); // by horizon: speed, low, high of each street
  /** The speed of free traffic of each street in km/h, as the latest layer has it; NaN if unknown. */
  freeFlow: number[] = [];
  /** The length of each street in metres; NaN if unknown. */
  length: number[] = [];

  get count(): number {
    return this.street.length;
  }

  /**
   * Adds the layer of one horizon, or only what has changed in it since the last one, where an empty code is unchanged.
   * `grown` is true if the geometry has changed.
   */
  take(horizon: number, layer: Uint8Array, changes: boolean): Speeds & { grown: boolean } {
    const before = this.speeds.get(horizon);
    const speeds = changes && before ? before : new Array(3 * this.count).fill(Number.NaN);
    const moved = new Set<number>();
    const added = this.count;
    readLayer(layer, (s) => {
      const hash = hashOf(s.code);
      let i = this.indexOf(s);
      if (i < 0) {
        i = this.add(s, hash);
      } else if (this.codes[i] !== hash && (!changes || s.code.length > 0)) {
        if (moved.size === 0) this.forget(layer, changes, moved);
        this.codes[i] = hash;
        this.draw(i, s.code);
      }
      speeds[3 * i] = s.speed;
      speeds[3 * i + 1] = s.low;
      speeds[3 * i + 2] = s.high;
      if (!Number.isNaN(s.speed)) {
        this.freeFlow[i] = s.freeFlow;
        this.length[i] = s.length;
      }
    });
    this.speeds.set(horizon, speeds);
    for (const all of this.speeds.values()) while (all.length < 3 * this.count) all.push(Number.NaN);
    const column = (k: number) => Float32Array.from({ length: this.count }, (_, i) => speeds[3 * i + k]);
    return {
      speed: column(0),
      low: column(1),
      high: column(2),
      grown: added === 0 || this.count > added || moved.size > 0,
    };
  }

  /** Removes the segments of all streets whose code has changed in the layer, and adds them to `moved`. */
  private forget(layer: Uint8Array, changes: boolean, moved: Set<number>): void {
    readLayer(layer, (s) => {
      const i = this.indexOf(s);
      if (i >= 0 && (!changes || s.code.length > 0) && this.codes[i] !== hashOf(s.code)) moved.add(i);
    });
    const { segments, owner } = this;
    this.segments = [];
    this.owner = [];
    owner.forEach((i, k) => {
      if (moved.has(i)) return;
      this.owner.push(i);
      this.segments.push(...segments.slice(4 * k, 4 * k + 4));
    });
  }

  private indexOf(s: Entry): number {
    let i = this.first.get(s.street) ?? -1;
    while (i >= 0 && this.fromnode[i] !== s.fromnode) i = this.next[i];
    return i;
  }

  private add(s: Entry, hash: number): number {
    const i = this.count;
    this.next.push(this.first.get(s.street) ?? -1);
    this.first.set(s.street, i);
    this.street.push(s.street);
    this.fromnode.push(s.fromnode);
    this.codes.push(hash);
    this.freeFlow.push(Number.NaN);
    this.length.push(Number.NaN);
    this.draw(i, s.code);
    return i;
  }

  /** Adds the segments between the location reference points of a street. */
  private draw(i: number, code: Uint8Array): void {
    let x = Number.NaN;
    let y = Number.NaN;
    this.drawn[i] = linePoints(code, (lon, lat) => {
      if (!Number.isNaN(x)) {
        this.segments.push(x, y, lon, lat);
        this.owner.push(i);
      }
      x = lon;
      y = lat;
    });
  }

  geometry(): Geometry {
    return {
      street: Int32Array.from(this.street),
      fromnode: Int32Array.from(this.fromnode),
      segments: Float64Array.from(this.segments),
      owner: Uint32Array.from(this.owner),
      undecodable: this.drawn.filter((d) => !d).length,
    };
  }
}

/** FNV-1a. */
function hashOf(bytes: Uint8Array): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) h = Math.imul(h ^ bytes[i], 0x01000193);
  return h;
}
