import { none, steps as stepCount } from "./palette";

/** The view of a map that is neither tilted nor a globe: pixels are computed from coordinates as x = m[0]·x + m[2]·y + m[4], y = m[1]·x + m[3]·y + m[5]. */
export interface View {
  matrix: [number, number, number, number, number, number];
  width: number; // px, as the others
  height: number;
  lines: number[]; // width of the line of each step and, last, of streets without a forecast
  gap: number; // between the segment and its line
  side: number; // 1: lines are to the right of their segments, -1: to the left
}

/** Width of the rim of the chosen street in px. */
export const rimWidth = 3;

/**
 * Raster draws lines into pixels without a graphics processor. It finds the pixels of a segment once per view and width; a
 * change of colours fills them again, and finds only those of streets that have another width now.
 */
export class Raster {
  private segments: Float32Array = new Float32Array(); // both ends in 4 numbers each
  private view?: View;
  private spans = new Int32Array(1024); // start and end of runs of pixels
  private used = 0;
  private first = new Int32Array(); // of the spans of each level and segment; -1: not found yet
  private end = new Int32Array();

  /** Forgets the pixels of the view before. */
  show(segments: Float32Array, view: View): void {
    const count = ((stepCount + 1) * segments.length) / 4;
    if (this.first.length !== count) [this.first, this.end] = [new Int32Array(count), new Int32Array(count)];
    this.first.fill(-1);
    this.used = 0;
    [this.segments, this.view] = [segments, view];
  }

  /** Draws all segments, slow ones above fast ones; `colours` are as `View.lines`. */
  paint(pixels: Uint32Array, owner: Uint32Array, steps: Uint8Array, colours: Uint32Array): void {
    const count = owner.length;
    for (let level = stepCount; level >= 0; level--) {
      const line = this.view!.lines[level];
      const colour = colours[level];
      const step = level === stepCount ? none : level;
      for (let k = 0; k < count; k++) {
        if (steps[owner[k]] !== step) continue;
        const i = level * count + k;
        if (this.first[i] < 0) {
          this.first[i] = this.used;
          this.find(k, line, line);
          this.end[i] = this.used;
        }
        this.fill(pixels, this.first[i], this.end[i], colour);
      }
    }
  }

  /** Draws the segments of one street with a rim, above everything drawn before. */
  paintChosen(pixels: Uint32Array, which: number[], step: number, colour: number, rim: number): void {
    const own = this.view!.lines[Math.min(step, stepCount)];
    const begin = this.used;
    for (const [width, filled] of [
      [own + 2 * rimWidth, rim],
      [own, colour],
    ]) {
      for (const k of which) this.find(k, own, width);
      this.fill(pixels, begin, this.used, filled);
      this.used = begin;
    }
  }

  private fill(pixels: Uint32Array, first: number, end: number, colour: number): void {
    const { spans } = this;
    for (let i = first; i < end; i += 2) {
      for (let p = spans[i]; p < spans[i + 1]; p++) pixels[p] = colour; // faster than pixels.fill() for so few
    }
  }

  /**
   * Adds the spans of a segment: the pixels whose centre is in a rectangle around it, which is longer by half its width.
   * `own` is the width of the street's line, which determines how far it is from the segment.
   */
  private find(k: number, own: number, line: number): void {
    const { segments } = this;
    const { matrix: m, width, height, side, gap } = this.view!;
    const offset = side * (gap + own / 2);
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
