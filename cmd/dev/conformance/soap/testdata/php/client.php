<?php
// Makes the calls on standard input with PHP's SoapClient. toolkit_client_test.go defines the lines.
declare(strict_types=1);

// The member that holds the items of a plain geometry, and the type of the items.
const ITEMS = [
    'PlainLineString' => ['wrappedPoints', 'PlainPoint'],
    'PlainLinearRing' => ['wrappedPoints', 'PlainPoint'],
    'PlainPolygon' => ['wrappedLinearRings', 'PlainLinearRing'],
    'PlainMultiPoint' => ['wrappedPoints', 'PlainPoint'],
    'PlainMultiLineString' => ['wrappedLineStrings', 'PlainLineString'],
    'PlainMultiPolygon' => ['wrappedPolygons', 'PlainPolygon'],
    'PlainGeometryCollection' => ['wrappedGeometries', 'PlainGeometryBase'],
];

// options are those of all clients. Each type of the WSDL becomes a class: SoapClient uses it to write and to read xsi:type.
function options(string $wsdl): array
{
    $classes = [];
    foreach ((new SoapClient($wsdl))->__getTypes() as $type) {
        if (preg_match('/^struct (\w+) /', $type, $m)) {
            $classes[$m[1]] = "xroute\\$m[1]";
            if (!class_exists($classes[$m[1]], false)) {
                eval("namespace xroute; #[\\AllowDynamicProperties] class $m[1] {}");
            }
        }
    }
    return ['classmap' => $classes, 'features' => SOAP_SINGLE_ELEMENT_ARRAYS, 'trace' => true];
}

// make returns an object of a type without the members that are null.
function make(string $type, array $members): object
{
    $class = "xroute\\$type";
    $made = new $class();
    foreach ($members as $name => $value) {
        if ($value !== null) {
            $made->$name = $value;
        }
    }
    return $made;
}

function arrayOf(string $item, ?array $items): ?object
{
    return $items === null ? null : make("ArrayOf$item", [$item => $items]);
}

function makeGeometry(array $g): object
{
    return make($g['type'], [
        'wkt' => $g['wkt'] ?? null,
        'wkb' => isset($g['wkb']) ? base64_decode($g['wkb']) : null,
        'kml' => isset($g['kml']) ? makeKML($g['kml']) : null,
        lcfirst($g['type']) => isset($g['plain']) ? makePlain($g['plain']) : null,
    ]);
}

function makeKML(array $kml): object
{
    return make('KML', ['kml' => $kml['kml'] ?? null, 'wrappedPlacemarks' => arrayOf('String', $kml['placemarks'] ?? null)]);
}

function makePlain(array $p): object
{
    if ($p['type'] !== 'PlainGeometryCollection') {
        return makeNested($p['type'], $p['coordinates']);
    }
    return make($p['type'], ['wrappedGeometries' => arrayOf('PlainGeometryBase', array_map(makePlain(...), $p['geometries']))]);
}

function makeNested(string $type, array $coordinates): object
{
    if ($type === 'PlainPoint') {
        return make($type, ['x' => $coordinates[0], 'y' => $coordinates[1], 'z' => $coordinates[2] ?? null]);
    }
    [$member, $item] = ITEMS[$type];
    return make($type, [$member => arrayOf($item, array_map(fn($c) => makeNested($item, $c), $coordinates))]);
}

function makeOptions(array $o): object
{
    return make('RequestOptions', [
        'coordFormat' => $o['coordFormat'],
        'srId' => $o['srId'] ?? null,
        'wrappedResponseGeometry' => arrayOf('GeometryEncoding', $o['encodings']),
    ]);
}

function makeContext(array $properties): object
{
    $list = array_map(fn($k, $v) => make('CallerContextProperty', ['key' => $k, 'value' => $v]), array_keys($properties), $properties);
    return make('CallerContext', ['wrappedProperties' => arrayOf('CallerContextProperty', $list)]);
}

// given removes the members that are null.
function given(array $members): array
{
    return array_filter($members, fn($m) => $m !== null);
}

function type(object $value): string
{
    return substr(get_class($value), strlen('xroute\\'));
}

function geometry(object $g): array
{
    $type = type($g);
    $plain = $g->{lcfirst($type)} ?? null;
    return given([
        'type' => $type,
        'wkt' => $g->wkt ?? null,
        'wkb' => isset($g->wkb) ? base64_encode($g->wkb) : null,
        'plain' => $plain === null ? null : plain($plain),
        'kml' => isset($g->kml) ? given(['kml' => $g->kml->kml ?? null, 'placemarks' => $g->kml->wrappedPlacemarks->String ?? null]) : null,
    ]);
}

function plain(object $p): array
{
    if (type($p) !== 'PlainGeometryCollection') {
        return ['type' => type($p), 'coordinates' => coordinates($p)];
    }
    return ['type' => type($p), 'geometries' => array_map(plain(...), $p->wrappedGeometries->PlainGeometryBase)];
}

function coordinates(object $p): array
{
    if (type($p) === 'PlainPoint') {
        return isset($p->z) ? [$p->x, $p->y, $p->z] : [$p->x, $p->y];
    }
    [$member, $item] = ITEMS[type($p)];
    return array_map(coordinates(...), $p->$member->$item);
}

function job(object $j): array
{
    $p = $j->progress ?? null;
    return ['job' => given([
        'id' => $j->id ?? null,
        'status' => $j->status,
        'elapsedTime' => $j->elapsedTime,
        'progress' => $p === null ? null : ['type' => type($p), 'failed' => $p->failed, 'remaining' => $p->remaining, 'successful' => $p->successful],
    ])];
}

function exception(object $e): array
{
    $stack = [];
    for ($s = $e->stackElement ?? null; $s !== null; $s = $s->cause ?? null) {
        $stack[] = given([
            'errorKey' => $s->errorKey ?? null,
            'message' => $s->message ?? null,
            'className' => $s->className ?? null,
            'context' => $s->wrappedContext->String ?? null,
        ]);
    }
    return ['type' => type($e), 'transactionId' => $e->transactionId ?? null, 'stack' => $stack];
}

function failure(object $f): array
{
    return ['index' => $f->index, 'exception' => exception($f->exception)];
}

// Calls has a method for each call of the lines, which returns the decoded response.
final class Calls
{
    private SoapClient $client;

    public function __construct(private string $wsdl, private array $options)
    {
        $this->client = new SoapClient($wsdl, $options);
    }

    public function authorize(array $line): array
    {
        $options = $this->options;
        if (isset($line['password'])) {
            $options += ['login' => 'anyone', 'password' => $line['password']];
        }
        if (isset($line['header'])) {
            $options['stream_context'] = stream_context_create(['http' => ['header' => "Authorization: {$line['header']}"]]);
        }
        $this->client = new SoapClient($this->wsdl, $options);
        return [];
    }

    public function convertGeometry(array $line): array
    {
        return ['geometry' => geometry($this->call($line, ['geometry' => makeGeometry($line['geometry']), 'options' => makeOptions($line['options'])]))];
    }

    public function startConvertGeometries(array $line): array
    {
        $geometries = arrayOf('EncodedGeometry', array_map(makeGeometry(...), $line['geometries']));
        return job($this->call($line, ['geometries' => $geometries, 'options' => makeOptions($line['options'])]));
    }

    public function fetchConvertGeometries(array $line): array
    {
        $result = $this->call($line);
        return job($result->job) + [
            'geometries' => array_map(geometry(...), $result->wrappedGeometries->EncodedGeometry ?? []),
            'failures' => array_map(failure(...), $result->wrappedFailures->ConversionFailure ?? []),
        ];
    }

    public function watchJob(array $line): array
    {
        return job($this->call($line, isset($line['watch']) ? ['options' => make('WatchOptions', $line['watch'])] : []));
    }

    public function stopJob(array $line): array
    {
        return job($this->call($line));
    }

    public function deleteJob(array $line): array
    {
        return job($this->call($line));
    }

    // call sends a request with the members that all requests may have.
    private function call(array $line, array $members = []): object
    {
        $members += given(['id' => $line['id'] ?? null, 'callerContext' => isset($line['properties']) ? makeContext($line['properties']) : null]);
        return $this->client->{$line['call']}($members)->result;
    }

    public function handle(array $line): array
    {
        try {
            return $this->{$line['call']}($line);
        } catch (SoapFault $raised) {
            if ($raised->faultcode === 'HTTP' && preg_match('/^HTTP\S+ (\d+)/', $this->client->__getLastResponseHeaders(), $m)) {
                return ['status' => (int) $m[1]];
            }
            foreach ((array) ($raised->detail ?? null) as $exception) {
                if ($exception instanceof SoapVar) {
                    $exception = $exception->enc_value; // SoapClient wraps an element without a schema, like the one in the detail
                }
                return ['fault' => exception($exception) + ['string' => $raised->faultstring]];
            }
            return ['error' => (string) $raised];
        }
    }
}

ini_set('soap.wsdl_cache_enabled', '0');
$calls = new Calls($argv[1], options($argv[1]));
while (($line = fgets(STDIN)) !== false) {
    echo json_encode($calls->handle(json_decode($line, true)) ?: new stdClass(), JSON_THROW_ON_ERROR), "\n";
}
