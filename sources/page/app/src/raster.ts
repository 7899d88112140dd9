import { steps as stepCount } from "./palette";

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

/** Draws all segments without a graphics processor. They have both ends in 4 numbers each. Slow ones are above fast ones; `colours` are as `View.lines`. */
export function paint(
  pixels: Uint32Array,
  segments: Float32Array,
  owner: Uint32Array,
  steps: Uint8Array,
  view: View,
  colours: Uint32Array,
): void {
  const level = (k: number) => Math.min(steps[owner[k]], stepCount);
  const counts = new Uint32Array(stepCount + 1);
  for (let k = 0; k < owner.length; k++) counts[level(k)]++;
  const levels = Array.from(counts, (n) => new Uint32Array(n));
  counts.fill(0);
  for (let k = 0; k < owner.length; k++) levels[level(k)][counts[level(k)]++] = k;
  for (let l = stepCount; l >= 0; l--) {
    for (const k of levels[l]) fill(pixels, segments, k, view, view.lines[l], view.lines[l], colours[l]);
  }
}

/** Draws the segments of one street with a rim, above everything drawn before. */
export function paintChosen(
  pixels: Uint32Array,
  segments: Float32Array,
  which: number[],
  view: View,
  step: number,
  colour: number,
  rim: number,
): void {
  const own = view.lines[Math.min(step, stepCount)];
  for (const [width, filled] of [
    [own + 2 * rimWidth, rim],
    [own, colour],
  ]) {
    for (const k of which) fill(pixels, segments, k, view, own, width, filled);
  }
}

/**
 * Fills the pixels whose centre is in a rectangle around a segment, which is longer by half its width. `own` is the width of
 * the street's line, which determines how far it is from the segment.
 */
function fill(
  pixels: Uint32Array,
  segments: Float32Array,
  k: number,
  view: View,
  own: number,
  line: number,
  colour: number,
): void {
  const { matrix: m, width, height } = view;
  const offset = view.side * (view.gap + own / 2);
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
    const to = y * width + Math.min(width - 1, Math.floor(cx + right));
    for (let p = y * width + Math.max(0, Math.ceil(cx + left)); p <= to; p++) pixels[p] = colour; // faster than fill() for so few
  }
}
