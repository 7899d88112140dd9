/** Delay on a street in minutes against free traffic: the contract says how it is computed. NaN if it is unknown. */
export function delay(speed: number, freeFlow: number, length: number): number {
  if (speed <= 0) return Number.POSITIVE_INFINITY; // closed
  return Math.max(0, 0.06 * length * (1 / speed - 1 / freeFlow));
}

/** The columns that the worst streets are found in. */
export interface Columns {
  speed: Float32Array;
  freeFlow: Float32Array;
  length: Float32Array;
}

/**
 * The streets with the highest delays, the worst first. Without lengths or speeds of free traffic, those with the lowest
 * shares of free flow or, without these either, the lowest speeds.
 */
export function worst({ speed, freeFlow, length }: Columns, count: number): number[] {
  const some = (of: (i: number) => number) => speed.some((v, i) => v > 0 && !Number.isNaN(of(i)));
  const ranks = [
    (i: number) => delay(speed[i], freeFlow[i], length[i]),
    (i: number) => 1 - speed[i] / freeFlow[i],
    (i: number) => -speed[i],
  ];
  const which = ranks.findIndex(some);
  const closed = (i: number) => (speed[i] <= 0 ? Number.POSITIVE_INFINITY : Number.NaN);
  const rank = Float32Array.from(speed, (v, i) => (v > 0 && which >= 0 ? ranks[which](i) : closed(i)));
  const least = which === 2 ? Number.NEGATIVE_INFINITY : 0;
  return Array.from(rank.keys())
    .filter((i) => rank[i] > least)
    .sort((a, b) => rank[b] - rank[a] || a - b)
    .slice(0, count);
}
