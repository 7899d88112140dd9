import { none, steps as stepCount } from "./palette";

/** The view of a map that is neither tilted nor a globe: pixels are computed from coordinates as x = m[0]·x + m[2]·y + m[4], y = m[1]·x + m[3]·y + m[5]. */
export interface View {
  matrix: [number, number, number, number, number, number];
  width: number; // px, as the others
  height: number;
  line: number; // width of a line
  offset: number; // of a line to the right of its segment
}

/**
 * Raster draws lines into pixels without a graphics processor. It finds the pixels of every segment only once per view;
 * a change of colours only fills them again.
 */
export class Raster {
  private spans = new Int32Array(1024); // start and end of runs of pixels
  private first = new Uint32Array(1); // of the spans of each segment
  private used = 0;

  /** Finds the pixels of segments, each of which has both ends in 4 numbers. */
  outline(segments: Float32Array, view: View): void {
    const count = segments.length / 4;
    this.first = new Uint32Array(count + 1);
    this.used = 0;
    for (let k = 0; k < count; k++) {
      this.rows(segments, k, view, view.line);
      this.first[k + 1] = this.used;
    }
  }

  /** Draws all segments, slow ones above fast ones; `colours` has the colours of the steps and, last, of streets without a forecast. */
  paint(pixels: Uint32Array, owner: Uint32Array, steps: Uint8Array, colours: Uint32Array): void {
    const { spans, first } = this;
    const count = first.length - 1;
    for (let level = stepCount; level >= 0; level--) {
      const step = level === stepCount ? none : level;
      for (let k = 0; k < count; k++) {
        if (steps[owner[k]] !== step) continue;
        for (let i = first[k]; i < first[k + 1]; i += 2) {
          for (let p = spans[i]; p < spans[i + 1]; p++) pixels[p] = colours[level]; // faster than fill() for so few
        }
      }
    }
  }

  /** Draws the segments of one street, wider and with a rim, above everything drawn before. */
  paintChosen(
    pixels: Uint32Array,
    segments: Float32Array,
    which: number[],
    view: View,
    colour: number,
    rim: number,
  ): void {
    const wide = 2 * view.line + 8;
    const begin = this.used;
    for (const [width, filled] of [
      [wide, rim],
      [0.6 * wide, colour],
    ]) {
      for (const k of which) this.rows(segments, k, view, width);
      for (let i = begin; i < this.used; i += 2) pixels.fill(filled, this.spans[i], this.spans[i + 1]);
      this.used = begin;
    }
  }

  /** Adds the spans of a segment: the pixels whose centre is in a rectangle around it, which is longer by half its width. */
  private rows(
    segments: Float32Array,
    k: number,
    { matrix: m, width, height, offset }: View,
    line: number,
  ): void {
    const x1 = segments[4 * k];
    const y1 = segments[4 * k + 1];
    const x2 = segments[4 * k + 2];
    const y2 = segments[4 * k + 3];
    const dx = m[0] * (x2 - x1) + m[2] * (y2 - y1);
    const dy = m[1] * (x2 - x1) + m[3] * (y2 - y1);
    const length = Math.sqrt(dx * dx + dy * dy);
    const ux = length > 1e-6 ? dx / length : 1;
    const uy = length > 1e-6 ? dy / length : 0;
    const cx = m[0] * x1 + m[2] * y1 + m[4] + dx / 2 - uy * offset - 0.5; // relative to the centres of pixels
    const cy = m[1] * x1 + m[3] * y1 + m[5] + dy / 2 + ux * offset - 0.5;
    const along = length / 2 + line / 4;
    const across = line / 2;
    const high = along * Math.abs(uy) + across * Math.abs(ux);
    const wide = along * Math.abs(ux) + across * Math.abs(uy);
    if (cx + wide < 0 || cx - wide > width || cy + high < 0 || cy - high > height) return;
    const last = Math.min(height - 1, Math.floor(cy + high));
    for (let y = Math.max(0, Math.ceil(cy - high)); y <= last; y++) {
      const down = y - cy;
      let left = -wide;
      let right = wide;
      if (Math.abs(ux) > 1e-9) {
        const middle = (-uy * down) / ux;
        const reach = along / Math.abs(ux);
        left = Math.max(left, middle - reach);
        right = Math.min(right, middle + reach);
      }
      if (Math.abs(uy) > 1e-9) {
        const middle = (ux * down) / uy;
        const reach = across / Math.abs(uy);
        left = Math.max(left, middle - reach);
        right = Math.min(right, middle + reach);
      }
      const from = Math.max(0, Math.ceil(cx + left));
      const to = Math.min(width - 1, Math.floor(cx + right)) + 1;
      if (from >= to) continue;
      if (this.used + 2 > this.spans.length) {
        const grown = new Int32Array(2 * this.spans.length);
        grown.set(this.spans);
        this.spans = grown;
      }
      this.spans[this.used++] = y * width + from;
      this.spans[this.used++] = y * width + to;
    }
  }
}
