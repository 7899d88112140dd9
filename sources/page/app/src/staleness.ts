import type { LayerState } from "./client";
import { duration, zoned } from "./format";

/** Why the layer is stale according to the daemon; empty if it is not, or has no streets at all. */
export function staleness(
  state: Pick<LayerState, "coveredUntil">,
  age: number | undefined,
  now: number,
  limits: { staleAfter: number; nearest: number; streets: number },
): string {
  if (limits.streets === 0) return "";
  if (!state.coveredUntil) return "No street has a current or future forecast.";
  if (Date.parse(state.coveredUntil) <= now + 60_000 * limits.nearest)
    return `The last one ends at ${zoned(state.coveredUntil)}, before the first horizon.`;
  if (age !== undefined && age > limits.staleAfter) {
    return `The newest data is ${duration(age)} old, more than the limit of ${duration(limits.staleAfter)}.`;
  }
  return "";
}
