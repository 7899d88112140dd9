// Numbers and times for people.

/** A number with at most three digits and a prefix: 1.2k, 34M. */
export function short(v: number): string {
  if (!Number.isFinite(v)) return "–";
  for (const [prefix, size] of [
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    if (Math.abs(v) >= size) return `${Number((v / size).toPrecision(3))}${prefix}`;
  }
  return String(Number(v.toPrecision(3)));
}

/** A rate: two digits below 10, whole numbers below 1,000. Counts of a minute have no more. */
export const rate = (v: number) =>
  v >= 1000 ? short(v) : v < 0.01 ? "0" : String(v < 10 ? Number(v.toPrecision(2)) : Math.round(v));

/** A number with all digits: 1,234,567. */
export const whole = (v: number) => Math.round(v).toLocaleString("en");

export function bytes(n: number): string {
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ] as const) {
    if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  }
  return `${n} B`;
}

export const milliseconds = (seconds: number) => `${short(seconds * 1000)} ms`;

/** A duration in its largest unit. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} days`;
}

/** How long before `now` a time was. */
export const ago = (time: string | undefined, now: string) =>
  time ? `${duration((Date.parse(now) - Date.parse(time)) / 1000)} ago` : "never";

/** The local time of day of a time, or of milliseconds since 1970. */
export const clock = (t: string | number | Date, seconds = false, zone?: "short") =>
  new Date(t).toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    second: seconds ? "2-digit" : undefined,
    timeZoneName: zone,
  });

/** The local time of day with its time zone. */
export const zoned = (t: string | number, seconds = false) => clock(t, seconds, "short");

const weekdays = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/** An hour of a weekday, where 1 is Monday. */
export interface WeekHour {
  weekday: number;
  hour: number;
}

export const weekdayName = (weekday: number) => weekdays[weekday - 1];

export const hourText = (hour: number) => `${String(hour).padStart(2, "0")}:00`;

export const weekHourText = (at: WeekHour) => `${weekdayName(at.weekday)} ${hourText(at.hour)}`;

export const kmh = (v: number) => `${v < 10 ? Number(v.toFixed(1)) : Math.round(v)} km/h`;

/** A number of minutes, with seconds if it is short. */
export const minutesOf = (v: number) =>
  v < 1 ? `${Math.round(60 * v)} s` : v < 10 ? `${v.toFixed(1)} min` : `${Math.round(v)} min`;
