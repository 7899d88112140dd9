import {
  type CustomLayerInterface,
  type CustomRenderMethodInput,
  type Map as GlMap,
  MercatorCoordinate,
} from "maplibre-gl";
import type { Geometry } from "./network";
import { type Colour, light, none, type Palette, steps, widths } from "./palette";
import { Raster, rimWidth, type View } from "./raster";

const textureWidth = 2048;

const vertexShader = `#version 300 es
uniform mat4 matrix;        // from mercator coordinates relative to the origin to clip space
uniform vec2 viewport;      // half of it, in px
uniform float width[${steps + 1}]; // px
uniform float rimWidth;     // px, of the chosen street
uniform float gap;          // px between the middle of the road and the line of a direction
uniform float side;         // 1: right-hand traffic, -1: left-hand
uniform highp usampler2D stepOf;
uniform vec3 palette[${steps + 1}];
uniform int selected;
in vec4 segment;            // both ends
in float owner;
out vec3 colour;
out float across;           // on the chosen street: -1 to 1 on its line, beyond that on its rim; 0 on others
void main() {
  vec2 corner = vec2(gl_VertexID >> 1 & 1, (gl_VertexID & 1) * 2 - 1); // along 0..1, across -1..1
  vec4 a = matrix * vec4(segment.xy, 0., 1.), b = matrix * vec4(segment.zw, 0., 1.);
  vec2 pa = a.xy / a.w * viewport, pb = b.xy / b.w * viewport;
  vec2 along = pb - pa;
  along = length(along) < 1e-6 ? vec2(1., 0.) : normalize(along);
  vec2 right = vec2(along.y, -along.x);
  int index = int(owner);
  uint step = texelFetch(stepOf, ivec2(index % ${textureWidth}, index / ${textureWidth}), 0).r;
  bool chosen = index == selected;
  int level = step == ${none}u ? ${steps} : int(step);
  float line = width[level], w = chosen ? line + 2. * rimWidth : line;
  across = chosen ? corner.y * w / line : 0.;
  colour = palette[level];
  vec4 end = corner.x < .5 ? a : b;
  vec2 offset = right * (side * (gap + line * .5) + corner.y * w * .5) + along * (corner.x - .5) * w * .5;
  gl_Position = end + vec4(offset / viewport * end.w, 0., 0.);
  // Slow streets lie above fast ones, and the chosen one above all.
  gl_Position.z = (chosen ? -.9 : float(min(step, ${steps}u)) * .1 - .5) * gl_Position.w;
}`;

const fragmentShader = `#version 300 es
precision mediump float;
uniform vec3 rim;           // of the chosen street
in vec3 colour;
in float across;
out vec4 fragment;
void main() { fragment = vec4(abs(across) > 1. ? rim : colour, 1.); }`;

/** Width of the line of each step in px at a zoom level; the last one is of streets without a forecast. */
export function lineWidths(zoom: number): number[] {
  const middle = Math.min(13, 2.6 * 2 ** (0.5 * (zoom - 12)));
  return widths.map((share) => Math.max(0.4 + 0.9 * share, share * middle));
}

/** Distance in px between the middle of the road and the line of a direction. */
const gapAt = (zoom: number) => Math.min(2, 0.12 * 2 ** (zoom - 11));

/** The streets on the map, one line for each segment. The geometry is prepared once; a change of the horizon changes only colours. */
export abstract class Streets {
  leftHand = false;
  /** The steps that are drawn, by street. */
  steps: Uint8Array = new Uint8Array(0);
  /** Whether the streets have been drawn with the current steps. */
  drawn = false;
  protected chosen = -1;
  protected colours = light;
  protected geometry?: Geometry;
  protected segments = new Float32Array(0); // mercator, relative to origin
  protected origin = { x: 0, y: 0 };
  protected map?: GlMap;

  /** Draws on a map whose style has been (re)loaded. */
  abstract attach(map: GlMap): void;
  /** The geometry has changed. */
  protected abstract prepare(): void;
  /** Colours have changed. */
  protected abstract redraw(): void;

  setGeometry(geometry: Geometry): void {
    this.geometry = geometry;
    const s = geometry.segments;
    if (s.length > 0) {
      const o = MercatorCoordinate.fromLngLat({ lng: s[0], lat: s[1] });
      this.origin = { x: o.x, y: o.y };
    }
    this.segments = new Float32Array(s.length);
    for (let i = 0; i < s.length; i += 2) {
      const p = MercatorCoordinate.fromLngLat({ lng: s[i], lat: s[i + 1] });
      this.segments[i] = p.x - this.origin.x;
      this.segments[i + 1] = p.y - this.origin.y;
    }
    this.prepare();
  }

  setColours(colours: Palette): void {
    this.colours = colours;
    this.redraw();
  }

  setSteps(value: Uint8Array): void {
    this.steps = value;
    this.drawn = false;
    this.redraw();
  }

  select(street: number): void {
    this.chosen = street;
    this.redraw();
  }

  /** The street nearest to a point of the page, at most `reach` px away; -1 if there is none. */
  near(point: { x: number; y: number }, reach: number): number {
    if (!this.map || !this.geometry) return -1;
    const { segments, owner } = this.geometry;
    const zoom = this.map.getZoom();
    const width = lineWidths(zoom);
    const box = [
      this.map.unproject([point.x - reach - 10, point.y + reach + 10]),
      this.map.unproject([point.x + reach + 10, point.y - reach - 10]),
    ];
    let best = -1;
    let nearest = reach * reach;
    for (let i = 0; i < owner.length; i++) {
      const [x1, y1, x2, y2] = segments.subarray(4 * i, 4 * i + 4);
      if (Math.max(x1, x2) < box[0].lng || Math.min(x1, x2) > box[1].lng) continue;
      if (Math.max(y1, y2) < box[0].lat || Math.min(y1, y2) > box[1].lat) continue;
      const a = this.map.project([x1, y1]);
      const b = this.map.project([x2, y2]);
      const [dx, dy] = [b.x - a.x, b.y - a.y];
      const length = Math.hypot(dx, dy) || 1;
      const side =
        (gapAt(zoom) + width[Math.min(this.steps[owner[i]] ?? none, steps)] / 2) * (this.leftHand ? -1 : 1);
      const [ox, oy] = [(-dy / length) * side, (dx / length) * side]; // to the right on the page, where y grows downwards
      const [px, py] = [point.x - a.x - ox, point.y - a.y - oy];
      const t = Math.min(1, Math.max(0, (px * dx + py * dy) / (length * length)));
      const d = (px - t * dx) ** 2 + (py - t * dy) ** 2;
      if (d < nearest) [nearest, best] = [d, owner[i]];
    }
    return best;
  }
}

/** Streets drawn by a graphics processor. The steps are a texture, so that a change of the horizon uploads a byte per street. */
export class GlStreets extends Streets implements CustomLayerInterface {
  readonly id = "streets";
  readonly type = "custom" as const;
  private gl?: WebGL2RenderingContext;
  private program?: WebGLProgram;
  private array?: WebGLVertexArrayObject;
  private buffers: WebGLBuffer[] = [];
  private texture?: WebGLTexture;
  private location: Record<string, WebGLUniformLocation | null> = {};

  attach(map: GlMap): void {
    if (!map.getLayer(this.id)) map.addLayer(this);
  }

  onAdd(map: GlMap, context: WebGLRenderingContext | WebGL2RenderingContext): void {
    const gl = context as WebGL2RenderingContext;
    this.map = map;
    this.gl = gl;
    const program = gl.createProgram()!;
    for (const [kind, source] of [
      [gl.VERTEX_SHADER, vertexShader],
      [gl.FRAGMENT_SHADER, fragmentShader],
    ] as const) {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      throw new Error(`cannot link the shader of the streets: ${gl.getProgramInfoLog(program)}`);
    }
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const name = gl.getActiveUniform(program, i)!.name.replace("[0]", "");
      this.location[name] = gl.getUniformLocation(program, name);
    }
    this.program = program;
    this.texture = gl.createTexture()!;
    this.buffers = []; // if the context was lost, they no longer exist
    this.array = undefined;
    this.prepare();
    this.uploadSteps();
  }

  onRemove(): void {
    const gl = this.gl;
    if (!gl) return;
    for (const b of this.buffers) gl.deleteBuffer(b);
    gl.deleteVertexArray(this.array ?? null);
    gl.deleteTexture(this.texture!);
    gl.deleteProgram(this.program!);
    this.gl = undefined;
    this.drawn = false;
  }

  protected redraw(): void {
    this.uploadSteps();
    this.map?.triggerRepaint();
  }

  protected prepare(): void {
    const gl = this.gl;
    if (!gl || !this.program) return;
    for (const b of this.buffers) gl.deleteBuffer(b);
    if (this.array) gl.deleteVertexArray(this.array);
    this.array = gl.createVertexArray()!;
    gl.bindVertexArray(this.array);
    const buffer = (target: number, data: AllowSharedBufferSource) => {
      const created = gl.createBuffer()!;
      gl.bindBuffer(target, created);
      gl.bufferData(target, data, gl.STATIC_DRAW);
      return created;
    };
    const attribute = (name: string, data: Float32Array, size: number) => {
      const created = buffer(gl.ARRAY_BUFFER, data);
      const at = gl.getAttribLocation(this.program!, name);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, gl.FLOAT, false, 0, 0);
      return created;
    };
    // Four vertices for each segment, with an index, because software renderers are much slower with instances.
    const count = this.segments.length / 4;
    const segments = new Float32Array(16 * count);
    const owners = new Float32Array(4 * count); // exact up to 16.7 million streets
    const corners = new Uint32Array(6 * count);
    for (let i = 0; i < count; i++) {
      const ends = this.segments.subarray(4 * i, 4 * i + 4);
      for (let k = 0; k < 4; k++) segments.set(ends, 16 * i + 4 * k);
      owners.fill(this.geometry!.owner[i], 4 * i, 4 * i + 4);
      corners.set([4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 2, 4 * i + 1, 4 * i + 3], 6 * i);
    }
    this.buffers = [
      attribute("segment", segments, 4),
      attribute("owner", owners, 1),
      buffer(gl.ELEMENT_ARRAY_BUFFER, corners),
    ];
    gl.bindVertexArray(null);
    this.map?.triggerRepaint();
  }

  private uploadSteps(): void {
    const gl = this.gl;
    if (!gl) return;
    const height = Math.max(1, Math.ceil(this.steps.length / textureWidth));
    const padded = new Uint8Array(textureWidth * height).fill(none);
    padded.set(this.steps);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.texture!);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.pixelStorei(gl.UNPACK_FLIP_Y_WEBGL, false);
    gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
    gl.texImage2D(
      gl.TEXTURE_2D,
      0,
      gl.R8UI,
      textureWidth,
      height,
      0,
      gl.RED_INTEGER,
      gl.UNSIGNED_BYTE,
      padded,
    );
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  }

  render(_: WebGLRenderingContext | WebGL2RenderingContext, input: CustomRenderMethodInput): void {
    const gl = this.gl;
    const map = this.map;
    if (!gl || !map || !this.array || this.segments.length === 0) return;
    gl.useProgram(this.program!);
    gl.bindVertexArray(this.array);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.texture!);
    const { width, height } = map.getCanvas();
    const ratio = width / map.getCanvas().clientWidth;
    const at = this.location;
    gl.uniformMatrix4fv(at.matrix, false, translated(input.defaultProjectionData.mainMatrix, this.origin));
    gl.uniform2f(at.viewport, width / 2, height / 2);
    gl.uniform1fv(
      at.width,
      lineWidths(map.getZoom()).map((w) => w * ratio),
    );
    gl.uniform1f(at.rimWidth, rimWidth * ratio);
    gl.uniform1f(at.gap, gapAt(map.getZoom()) * ratio);
    gl.uniform1f(at.side, this.leftHand ? -1 : 1);
    gl.uniform1i(at.stepOf, 0);
    gl.uniform1i(at.selected, this.chosen);
    gl.uniform3fv(
      at.palette,
      [...this.colours.steps, this.colours.none].flat().map((c) => c / 255),
    );
    gl.uniform3fv(
      at.rim,
      this.colours.rim.map((c) => c / 255),
    );
    gl.disable(gl.CULL_FACE);
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    gl.depthMask(true);
    gl.depthRange(0, 1);
    gl.clearDepth(1);
    gl.clear(gl.DEPTH_BUFFER_BIT); // this is the topmost layer
    gl.disable(gl.BLEND);
    gl.drawElements(gl.TRIANGLES, 1.5 * this.segments.length, gl.UNSIGNED_INT, 0);
    gl.bindVertexArray(null);
    this.drawn = this.steps.length > 0;
  }
}

/** matrix · translation by origin, in double precision. */
function translated(matrix: ArrayLike<number>, origin: { x: number; y: number }): Float32Array {
  const m = Float32Array.from(matrix);
  for (let row = 0; row < 4; row++)
    m[12 + row] = matrix[row] * origin.x + matrix[4 + row] * origin.y + matrix[12 + row];
  return m;
}

/** Streets drawn into a canvas over the map, which takes a tenth of the time without a graphics processor. */
export class RasterStreets extends Streets {
  private canvas = document.createElement("canvas");
  private image = new ImageData(1, 1);
  private raster = new Raster();
  private outlined = ""; // the view that the raster has
  private due = 0; // a request for an animation frame

  attach(map: GlMap): void {
    if (this.map === map) return;
    this.map = map;
    this.canvas.className = "streets";
    Object.assign(this.canvas.style, { position: "absolute", inset: "0", pointerEvents: "none" });
    map.getCanvasContainer().append(this.canvas);
    map.on("render", () => this.draw(false));
  }

  protected prepare(): void {
    this.outlined = "";
    this.redraw();
  }

  protected redraw(): void {
    if (this.due !== 0) return;
    this.due = requestAnimationFrame(() => {
      this.due = 0;
      this.draw(true);
    });
  }

  private view(map: GlMap): View {
    const at = (x: number, y: number) =>
      map.project(new MercatorCoordinate(this.origin.x + x, this.origin.y + y).toLngLat());
    const [far, o] = [1e-3, at(0, 0)];
    const [a, b] = [at(far, 0), at(0, far)];
    return {
      matrix: [(a.x - o.x) / far, (a.y - o.y) / far, (b.x - o.x) / far, (b.y - o.y) / far, o.x, o.y],
      width: map.getCanvas().clientWidth,
      height: map.getCanvas().clientHeight,
      lines: lineWidths(map.getZoom()),
      gap: gapAt(map.getZoom()),
      side: this.leftHand ? -1 : 1,
    };
  }

  private draw(recoloured: boolean): void {
    const { map, geometry, canvas, chosen, colours, steps } = this;
    if (!map || !geometry || steps.length === 0) return;
    const view = this.view(map);
    if (view.width === 0 || view.height === 0) return; // the map is hidden
    const name = JSON.stringify(view);
    const moved = name !== this.outlined;
    if (!moved && !recoloured) return;
    if (moved) {
      this.raster.show(this.segments, view);
      this.outlined = name;
    }
    if (canvas.width !== view.width || canvas.height !== view.height) {
      [canvas.width, canvas.height] = [view.width, view.height];
      this.image = new ImageData(view.width, view.height);
    }
    const pixels = new Uint32Array(this.image.data.buffer).fill(0);
    const palette = Uint32Array.from([...colours.steps, colours.none], packed);
    this.raster.paint(pixels, geometry.owner, steps, palette);
    if (chosen >= 0) {
      const own: number[] = [];
      for (let k = geometry.owner.indexOf(chosen); k >= 0; k = geometry.owner.indexOf(chosen, k + 1))
        own.push(k);
      const colour = palette[Math.min(steps[chosen], palette.length - 1)];
      this.raster.paintChosen(pixels, own, steps[chosen], colour, packed(colours.rim));
    }
    canvas.getContext("2d")!.putImageData(this.image, 0, 0);
    this.drawn = true;
  }
}

/** A colour as a number whose bytes are red, green, blue and opaque. */
const packed = ([r, g, b]: Colour) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
