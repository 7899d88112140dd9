import type { WeekHour } from "./format";

/** What the address keeps after the # sign, so that a link shows the same. */
export interface Address {
  street?: string; // number/fromnode
  minutes?: number;
  typical?: WeekHour; // weekday/hour
  colours?: string;
  place?: [longitude: number, latitude: number, zoom: number];
}

export function readAddress(hash: string): Address {
  const q = new URLSearchParams(hash.split("?")[1] ?? "");
  const place = q.get("place")?.split(",").map(Number);
  const minutes = q.has("minutes") ? Number(q.get("minutes")) : Number.NaN;
  const typical = /^([1-7])\/(1?\d|2[0-3])$/.exec(q.get("typical") ?? "");
  return {
    street: q.get("street") ?? undefined,
    minutes: Number.isInteger(minutes) ? minutes : undefined,
    typical: typical ? { weekday: Number(typical[1]), hour: Number(typical[2]) } : undefined,
    colours: q.get("colours") ?? undefined,
    place:
      place?.length === 3 && place.every(Number.isFinite) ? (place as [number, number, number]) : undefined,
  };
}

/** The hash for an address, with the view that it had. */
export function writeAddress(hash: string, a: Address): string {
  const q = Object.entries({
    street: a.street,
    minutes: a.minutes,
    typical: a.typical && `${a.typical.weekday}/${a.typical.hour}`,
    colours: a.colours,
    place: a.place?.map((v, i) => v.toFixed(i === 2 ? 2 : 5)).join(),
  })
    .filter(([, v]) => v !== undefined)
    .map(([k, v]) => `${k}=${v}`);
  const view = hash.split("?")[0];
  return q.length === 0 ? view : `${view || "#"}?${q.join("&")}`;
}
