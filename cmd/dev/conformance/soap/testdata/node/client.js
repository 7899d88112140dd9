// Makes the calls on standard input with node-soap. toolkit_client_test.go defines the lines.
'use strict';

const readline = require('node:readline');
const soap = require('soap');

// The member that holds the items of a plain geometry, and the type of the items.
const items = {
  PlainLineString: ['wrappedPoints', 'PlainPoint'],
  PlainLinearRing: ['wrappedPoints', 'PlainPoint'],
  PlainPolygon: ['wrappedLinearRings', 'PlainLinearRing'],
  PlainMultiPoint: ['wrappedPoints', 'PlainPoint'],
  PlainMultiLineString: ['wrappedLineStrings', 'PlainLineString'],
  PlainMultiPolygon: ['wrappedPolygons', 'PlainPolygon'],
  PlainGeometryCollection: ['wrappedGeometries', 'PlainGeometryBase'],
};

// member returns the name of the element that holds the plain form: point for Point.
const member = (type) => type[0].toLowerCase() + type.slice(1);

// typed sets the xsi:type of a polymorphic object, with the prefix of the WSDL, which node-soap declares in the envelope.
const typed = (type) => ({ xsi_type: { type, prefix: 'c' } });

// array returns undefined, which is not written, if there is no list.
const array = (item, list) => list && { [item]: list };

// make converts the members of the lines to the objects of node-soap.
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

// given removes the members that are undefined.
function given(members) {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

// kind returns the xsi:type of an object without its prefix.
const kind = (value) => value.attributes['xsi:type'].replace(/.*:/, '');

// list returns the items of an array, which may be none, one or many.
const list = (value, item) => [].concat(value?.[item] ?? []);

const seen = {
  geometry(g) {
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
  exception(type, e) {
    const stack = [];
    for (let s = e.stackElement; s; s = s.cause) {
      const { errorKey, message, className } = s.attributes;
      stack.push(given({ errorKey, message, className, context: s.wrappedContext && list(s.wrappedContext, 'String') }));
    }
    return { type, transactionId: e.attributes.transactionId, stack };
  },
  fault(f) {
    const [[type, exception]] = Object.entries(f.detail);
    return { fault: { ...seen.exception(type, exception), string: f.faultstring } };
  },
  failure(f) {
    return { index: Number(f.attributes.index), exception: seen.exception(kind(f.exception), f.exception) };
  },
};

// context returns the members that end every request.
const context = (line) => (line.properties ? { callerContext: make.context(line.properties) } : {});

// calls maps the calls of the lines to functions, which return the decoded response.
const calls = {
  async authorize(client, line) {
    delete client.getHttpHeaders()?.Authorization; // clearHttpHeaders would also disable later security objects
    client.setSecurity(line.password ? new soap.BasicAuthSecurity('anyone', line.password) : null);
    if (line.header) client.addHttpHeader('Authorization', line.header);
    return {};
  },
  async convertGeometry(client, line) {
    const request = { geometry: make.geometry(line.geometry), options: make.options(line.options), ...context(line) };
    const [response] = await client.convertGeometryAsync(request);
    return { geometry: seen.geometry(response.result) };
  },
  async startConvertGeometries(client, line) {
    const geometries = { EncodedGeometry: line.geometries.map(make.geometry) };
    const [response] = await client.startConvertGeometriesAsync({ geometries, options: make.options(line.options), ...context(line) });
    return seen.job(response.result);
  },
  async fetchConvertGeometries(client, line) {
    const [{ result }] = await client.fetchConvertGeometriesAsync({ id: line.id, ...context(line) });
    return {
      ...seen.job(result.job),
      geometries: list(result.wrappedGeometries, 'EncodedGeometry').map(seen.geometry),
      failures: list(result.wrappedFailures, 'ConversionFailure').map(seen.failure),
    };
  },
  async watchJob(client, line) {
    const [response] = await client.watchJobAsync({ id: line.id, ...(line.watch ? { options: { attributes: line.watch } } : {}), ...context(line) });
    return seen.job(response.result);
  },
  async stopJob(client, line) {
    const [response] = await client.stopJobAsync({ id: line.id, ...context(line) });
    return seen.job(response.result);
  },
  async deleteJob(client, line) {
    const [response] = await client.deleteJobAsync({ id: line.id, ...context(line) });
    return seen.job(response.result);
  },
};

async function handle(client, line) {
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
    console.log(JSON.stringify(await handle(client, JSON.parse(line))));
  }
}

main();
