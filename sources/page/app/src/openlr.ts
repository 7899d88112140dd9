// Binary OpenLR line locations, version 3 (OpenLR white paper 1.5, chapter 7). Only coordinates are read: the page draws
// 100,000 streets, and a decoder that builds objects for their attributes takes most of the time to the first view.
// A test compares the result with openlr-js.

const first = 10; // bytes of the status, the first point's coordinates and its attributes
const last = 6; // bytes of the last point
const inner = 7; // bytes of a point between them

const digits = new Int8Array(256).fill(-1);
for (const [i, c] of [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"].entries()) {
  digits[c.charCodeAt(0)] = i;
}

const raw = new Uint8Array(4096); // a code

/** Decodes base64 text into `raw`. Returns the number of bytes, -1 if the text is invalid or too long. */
function decodeBase64(text: Uint8Array): number {
  let end = text.length;
  while (end > 0 && text.length - end < 2 && text[end - 1] === 0x3d) end--;
  if (text.length % 4 !== 0 || (end * 3) / 4 > raw.length) return -1;
  let n = 0;
  let bits = 0;
  let held = 0;
  for (let i = 0; i < end; i++) {
    const d = digits[text[i]];
    if (d < 0) return -1;
    held = ((held << 6) | d) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      raw[n++] = held >> bits;
    }
  }
  return n;
}

const signed24 = (at: number) => ((raw[at] << 24) >> 8) | (raw[at + 1] << 8) | raw[at + 2];
const signed16 = (at: number) => ((raw[at] << 24) >> 16) | raw[at + 1];
const degrees = (v: number) => ((v - Math.sign(v) * 0.5) * 360) / 2 ** 24;

/** Calls `point` with longitude and latitude of each location reference point, in degrees. Returns false, without
 * calling `point`, if the base64 text is not the code of a line. */
export function linePoints(code: Uint8Array, point: (lon: number, lat: number) => void): boolean {
  const size = decodeBase64(code);
  const rest = (size - first - last) % inner; // bytes of offsets
  if (size < first + last || rest > 2 || raw[0] !== 0x0b) return false;
  const offsets = raw[size - rest - 1];
  if (((offsets >> 5) & 1) + ((offsets >> 6) & 1) !== rest) return false;
  let lon = degrees(signed24(1));
  let lat = degrees(signed24(4));
  if (Math.abs(lon) > 180 || Math.abs(lat) > 90) return false;
  point(lon, lat);
  for (let at = first; at < size - rest; at += inner) {
    lon += signed16(at) / 1e5;
    lat += signed16(at + 2) / 1e5;
    point(lon, lat);
  }
  return true;
}
