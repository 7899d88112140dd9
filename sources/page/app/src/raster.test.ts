import { expect, test } from "vitest";
import { none } from "./palette";
import { Raster, type View } from "./raster";

const size = 40;
const view: View = {
  matrix: [1.2, 0.3, -0.4, 0.9, 3, 5],
  width: size,
  height: size,
  lines: [5, 4.5, 4, 3, 2.5, 2],
  gap: 0.5,
  side: 1,
};
const colours = Uint32Array.from([11, 12, 13, 14, 15, 16]);

/** Whether the centre of a pixel is in the rectangle of a line, decided from the ends of its segment. */
function covers(ends: Float32Array, line: number, x: number, y: number): boolean {
  const m = view.matrix;
  const [ax, ay, bx, by] = [0, 2].flatMap((i) => [
    m[0] * ends[i] + m[2] * ends[i + 1] + m[4],
    m[1] * ends[i] + m[3] * ends[i + 1] + m[5],
  ]);
  const length = Math.hypot(bx - ax, by - ay);
  const [ux, uy] = [(bx - ax) / length, (by - ay) / length];
  const [px, py] = [x + 0.5 - ax, y + 0.5 - ay];
  const along = px * ux + py * uy;
  const right = py * ux - px * uy;
  const more = line / 4;
  return along >= -more && along <= length + more && Math.abs(right - view.gap - line / 2) <= line / 2;
}

test("lines cover the pixels of their rectangles, slow streets above fast ones", () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return (seed / 2147483647) * 60 - 15; // some are outside, or cross the edge
  };
  const segments = Float32Array.from({ length: 4 * 60 }, random);
  segments.set([2, 8, 30, 8, 8, 2, 8, 30]);
  const owner = Uint32Array.from({ length: 60 }, (_, k) => k >> 1);
  const steps = Uint8Array.from({ length: 30 }, (_, i) => (i % 6 === 5 ? none : i % 6));
  const level = (k: number) => Math.min(5, steps[owner[k]]);
  const ends = segments.slice();
  const raster = new Raster();
  raster.show(segments, view);
  for (let round = 0; round < 3; round++) {
    const want = new Uint32Array(size * size);
    for (let y = 0; y < size; y++) {
      for (let x = 0; x < size; x++) {
        const levels = [...owner.keys()]
          .filter((k) => covers(ends.subarray(4 * k, 4 * k + 4), view.lines[level(k)], x, y))
          .map(level);
        if (levels.length > 0) want[y * size + x] = colours[Math.min(...levels)];
      }
    }
    const got = new Uint32Array(size * size);
    raster.paint(got, owner, steps, colours);
    expect(got).toEqual(want);
    steps.reverse(); // only the colours and widths change
    if (round === 1) segments.fill(0); // the pixels of both widths are known
  }
});

test("the chosen street has a rim", () => {
  const pixels = new Uint32Array(size * size);
  const segments = Float32Array.from([0, 10, 20, 10]);
  const straight: View = { ...view, matrix: [1, 0, 0, 1, 5, 5], lines: [8], gap: -4 };
  const raster = new Raster();
  raster.show(segments, straight);
  raster.paintChosen(pixels, [0], 0, 7, 9);
  const column = Array.from({ length: size }, (_, y) => pixels[y * size + 15]);
  expect(column.slice(8, 22)).toEqual([9, 9, 9, 7, 7, 7, 7, 7, 7, 7, 7, 9, 9, 9]);
  expect(column.filter((c) => c !== 0).length).toBe(14);
});
