// Calls the routing service with node-soap as standard input says; the lines are those of toolkit_client_test.go.
'use strict';

const readline = require('node:readline');
const soap = require('soap');

const common = 'urn:xserver:common';

// Where the items of a plain geometry stand: the member and the items' type.
const items = {
  PlainLineString: ['wrappedPoints', 'PlainPoint'],
  PlainLinearRing: ['wrappedPoints', 'PlainPoint'],
  PlainPolygon: ['wrappedLinearRings', 'PlainLinearRing'],
  PlainMultiPoint: ['wrappedPoints', 'PlainPoint'],
  PlainMultiLineString: ['wrappedLineStrings', 'PlainLineString'],
  PlainMultiPolygon: ['wrappedPolygons', 'PlainPolygon'],
  PlainGeometryCollection: ['wrappedGeometries', 'PlainGeometryBase'],
};

// member is the element that holds the plain form: point of Point.
const member = (type) => type[0].toLowerCase() + type.slice(1);

const typed = (type) => ({ xsi_type: { type, xmlns: common, prefix: 'c' } });

// array is null-tolerant: what is not there is not written.
const array = (item, list) => list && { [item]: list };

// make has what turns the lines into node-soap's objects.
const make = {
  geometry(g) {
    const kml = g.kml && { attributes: given({ kml: g.kml.kml }), wrappedPlacemarks: array('String', g.kml.placemarks) };
    return given({
      attributes: given({ ...typed(g.type), wkt: g.wkt, wkb: g.wkb }),
      kml: kml && given(kml),
      [member(g.type)]: g.plain && make.plain(g.plain),
    });
  },
  plain(p) {
    if (p.type !== 'PlainGeometryCollection') return make.nested(p.type, p.coordinates);
    return make.items(p.type, p.geometries.map((g) => {
      const made = make.plain(g);
      return { ...made, attributes: { ...typed(g.type), ...made.attributes } };
    }));
  },
  nested(type, coordinates) {
    if (type === 'PlainPoint') {
      const [x, y, z] = coordinates;
      return { attributes: given({ x, y, z }) };
    }
    return make.items(type, coordinates.map((c) => make.nested(items[type][1], c)));
  },
  items(type, list) {
    const [wrapper, item] = items[type];
    return { [wrapper]: { [item]: list } };
  },
  options(o) {
    return {
      attributes: given({ coordFormat: o.coordFormat, srId: o.srId }),
      wrappedResponseGeometry: { GeometryEncoding: o.encodings },
    };
  },
  context(properties) {
    const list = Object.entries(properties).map(([key, value]) => ({ attributes: { key, value } }));
    return { wrappedProperties: { CallerContextProperty: list } };
  },
};

// given leaves out what is not there.
function given(members) {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

// kind is the type that an object says it has, its prefix cut off.
const kind = (value) => value.attributes['xsi:type'].replace(/.*:/, '');

// list is what stands in an array, be it none, one or many.
const list = (value, item) => [].concat(value?.[item] ?? []);

const seen = {
  geometry(g) {
    if (g === null || g.attributes['xsi:nil']) return null;
    const type = kind(g);
    return given({
      type,
      wkt: g.attributes.wkt,
      wkb: g.attributes.wkb,
      plain: g[member(type)] && seen.plain('Plain' + type, g[member(type)]),
      kml: g.kml && given({ kml: g.kml.attributes?.kml, placemarks: g.kml.wrappedPlacemarks && list(g.kml.wrappedPlacemarks, 'String') }),
    });
  },
  plain(type, p) {
    if (type !== 'PlainGeometryCollection') return { type, coordinates: seen.coordinates(type, p) };
    return { type, geometries: list(p.wrappedGeometries, 'PlainGeometryBase').map((g) => seen.plain(kind(g), g)) };
  },
  coordinates(type, p) {
    if (type === 'PlainPoint') {
      return [p.attributes.x, p.attributes.y, p.attributes.z].filter((c) => c !== undefined).map(Number);
    }
    const [wrapper, item] = items[type];
    return list(p[wrapper], item).map((c) => seen.coordinates(item, c));
  },
  job(j) {
    const { id, status, elapsedTime } = j.attributes;
    const progress = j.progress && {
      type: kind(j.progress),
      failed: Number(j.progress.attributes.failed),
      remaining: Number(j.progress.attributes.remaining),
      successful: Number(j.progress.attributes.successful),
    };
    return { job: given({ id, status, elapsedTime: Number(elapsedTime), progress: progress ?? undefined }) };
  },
  fault(f) {
    const [[name, exception]] = Object.entries(f.detail);
    const stack = [];
    for (let e = exception.stackElement; e; e = e.cause) {
      const { errorKey, message, className } = e.attributes;
      stack.push(given({ errorKey, message, className, context: e.wrappedContext && list(e.wrappedContext, 'String') }));
    }
    return { fault: { type: name, string: f.faultstring, transactionId: exception.attributes.transactionId, stack } };
  },
};

// context is what all requests have at their end.
const context = (line) => (line.properties ? { callerContext: make.context(line.properties) } : {});

// calls is what a line's call does with the client; each gives what was seen.
const calls = {
  async authorize(client, line) {
    client.clearHttpHeaders();
    client.setSecurity(line.password ? new soap.BasicAuthSecurity('anyone', line.password) : null);
    if (line.header) client.addHttpHeader('Authorization', line.header);
    return {};
  },
  async convertGeometry(client, line) {
    const request = { geometry: make.geometry(line.geometry), options: make.options(line.options), ...context(line) };
    const [answer] = await client.convertGeometryAsync(request);
    return { geometry: seen.geometry(answer.result) };
  },
  async startConvertGeometries(client, line) {
    const geometries = { EncodedGeometry: line.geometries.map(make.geometry) };
    const [answer] = await client.startConvertGeometriesAsync({ geometries, options: make.options(line.options), ...context(line) });
    return seen.job(answer.result);
  },
  async fetchConvertGeometries(client, line) {
    const [{ result }] = await client.fetchConvertGeometriesAsync({ id: line.id, ...context(line) });
    return { ...seen.job(result.job), geometries: result.wrappedGeometries && list(result.wrappedGeometries, 'EncodedGeometry').map(seen.geometry) };
  },
  async watchJob(client, line) {
    const [answer] = await client.watchJobAsync({ id: line.id, ...(line.watch ? { options: { attributes: line.watch } } : {}), ...context(line) });
    return seen.job(answer.result);
  },
  async stopJob(client, line) {
    const [answer] = await client.stopJobAsync({ id: line.id, ...context(line) });
    return seen.job(answer.result);
  },
  async deleteJob(client, line) {
    const [answer] = await client.deleteJobAsync({ id: line.id, ...context(line) });
    return seen.job(answer.result);
  },
};

async function answer(client, line) {
  try {
    return await calls[line.call](client, line);
  } catch (raised) {
    const fault = raised.root?.Envelope?.Body?.Fault;
    if (fault) return seen.fault(fault);
    if (raised.response?.status) return { status: raised.response.status };
    return { error: String(raised.stack ?? raised) };
  }
}

async function main() {
  const client = await soap.createClientAsync(process.argv[2]);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(client, JSON.parse(line))));
  }
}

main();
