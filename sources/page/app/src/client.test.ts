import { expect, test, vi } from "vitest";
import { fetchLayer } from "./client";

test("a request without a response fails after the time limit", async () => {
  const hang = (_: string, { signal }: RequestInit) =>
    new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  vi.stubGlobal("fetch", hang);
  await expect(fetchLayer("http://127.0.0.1/", "key", { horizon: 30 }, 10)).rejects.toThrow(
    "cannot be reached",
  );
});
