{{- /* The statements of package archive, as templates. Parameters are in type query. */ -}}

{{define "dense"}}
SELECT d.detector_code AS detector_code, latest,
    {{- if .Refused}}
    health.states AS states, arrayExists(x -> x.2 > {{.To}}, states) AS refused,
    {{- else}}
    CAST([], 'Array(Tuple(UInt32, UInt32))') AS states, false AS refused,
    {{- end}}
    arrayMap((w, s, n) -> if(w > 0, s / n, 0.), ws, total, readings) AS vs,
    arrayMap((n, c, k, i) -> multiIf(
        n = 0 OR c > 0 AND k <= 0 OR arrayExists(x -> x.1 < {{.From}} + {{.Step}} * (i + 1) AND x.2 > {{.From}} + {{.Step}} * i, states), 0.,
        c > 0, k / (k + 2), 0.6), readings, counts, vehicles, range({{.Places}})) AS ws,
    arrayMap((w, c, k) -> multiIf(w = 0, 0., c > 0, k / (k + 3), 0.5), ws, counts, vehicles) AS ts,
    arrayMap((w, c, k) -> toFloat64(w > 0 AND (c = 0 OR k >= {{.Least}})), ws, counts, vehicles) AS bs
FROM (
    {{- if .Lanes}}
    -- A lane without a count has the weight of 3 vehicles, as in the weights above.
    SELECT detector_code, max(lane_latest) AS latest,
        sumForEach(arrayMap((w, s, n) -> if(w > 0, w * s / n, 0.), lane_weights, lane_total, lane_readings)) AS total,
        sumForEach(lane_weights) AS readings, readings AS vehicles,
        sumForEach(arrayMap((w, c) -> if(w > 0, c, 0), lane_weights, lane_counts)) AS counts
    FROM (
    SELECT detector_code, latest AS lane_latest, total AS lane_total, readings AS lane_readings, counts AS lane_counts,
        arrayMap((n, c, k) -> multiIf(n = 0 OR c > 0 AND k <= 0, 0., c > 0, k, 3.), readings, counts, vehicles) AS lane_weights
    FROM (
    {{- end}}
    SELECT detector_code,{{if .Lanes}} lane,{{end}} max(timestamp_to) AS latest,
        sumResampleIf(0, {{.Places}}, 1)(value, place, usable) AS total, countResampleIf(0, {{.Places}}, 1)(place, usable) AS readings,
        {{- if .Counted}}
        sumResampleIf(0, {{.Places}}, 1)(least(number, 1e6), place, counted) AS vehicles, countResampleIf(0, {{.Places}}, 1)(place, counted) AS counts
        {{- else}}
        arrayWithConstant({{.Places}}, 0.) AS vehicles, arrayWithConstant({{.Places}}, 0) AS counts
        {{- end}}
    FROM (
        SELECT detector_code, timestamp_to, value,
            {{- if .Counted}}
            if(measure_type_code IN (SELECT measure_type_code FROM {{.MeasureTypes}} WHERE per_hour),
                value * dateDiff('second', timestamp_from, timestamp_to) / 3600, value) AS number, -- of vehicles
            {{- end}}
            greatest(toUnixTimestamp(timestamp_from), toUnixTimestamp(timestamp_to) - 1) AS last_second, -- an instant may begin an interval
            toUInt32(intDiv(last_second - {{.From}}, {{.Step}})) AS place,
            {{.Covers .Measure}} AS measured, measured AND value {{if .Zero}}>={{else}}>{{end}} 0 AND value <= {{.Most}} AS usable,
            {{- if .Lanes}}
            if(measured, {{.Lane .Measure}}, {{.Lane .Count}}) AS lane,
            {{- end}}
            {{if .Counted}}{{.Covers .Count}}{{else}}false{{end}} AS counted
        FROM {{.Archive}} FINAL
        WHERE product_instance = {{q .Instance}} AND {{.Used}}
            AND timestamp_from >= fromUnixTimestamp({{.From}}) AND timestamp_from < fromUnixTimestamp({{.To}})
            AND timestamp_to <= fromUnixTimestamp({{.To}})
            {{- if .Received}} AND received_at >= fromUnixTimestamp({{.Received}}){{end}}
    )
    GROUP BY detector_code{{if .Lanes}}, lane
    )) GROUP BY detector_code
    {{- end}}
) AS d
{{- if .Refused}}
LEFT JOIN (
    -- When the values of a detector are refused: its states of health, as pairs of the first and last second.
    SELECT detector_code, groupArray((toUnixTimestamp(first_at), if(current, {{.Future}}, toUnixTimestamp(last_at)))) AS states
    FROM {{.Health}}
    WHERE product_instance = {{q .Instance}} AND {{.Used}} AND state IN ({{.RefusedStates}})
        AND first_at < fromUnixTimestamp({{.To}}) AND (current OR last_at > fromUnixTimestamp({{.From}}))
    GROUP BY detector_code
) AS health ON health.detector_code = d.detector_code
{{- end}}
{{end}}

{{define "values"}}
INSERT INTO {{.Tables}}.forecaster_values (product_instance, measure_type_code, day, detector_code, vs, ws, ts, bs)
SELECT {{q .Instance}}, {{q .Measure}}, d.1, detector_code,
    arraySlice(vs, d.2, d.3), arraySlice(ws, d.2, d.3) AS weights, arraySlice(ts, d.2, d.3), arraySlice(bs, d.2, d.3)
FROM ({{template "dense" .}}) ARRAY JOIN {{.Days}} AS d
WHERE arrayMax(weights) > 0
{{end}}

{{define "recent"}}
SELECT v.detector_code AS detector_code, vs, ws, bs, latest, refused, {{if .Refused}}street{{else}}''{{end}} AS street
FROM ({{template "dense" .}}) AS v
{{- if .Refused}}
LEFT JOIN (SELECT detector_code, street FROM {{.Detectors}} WHERE product_instance = {{q .Instance}}) AS r ON r.detector_code = v.detector_code
{{- end}}
ORDER BY detector_code
{{end}}

{{define "silent"}}
SELECT DISTINCT h.detector_code AS detector_code, fromUnixTimestamp({{.To}}) AS latest, true AS refused, street
FROM {{.Health}} AS h
LEFT JOIN (SELECT detector_code, street FROM {{.Detectors}} WHERE product_instance = {{q .Instance}}) AS r ON r.detector_code = h.detector_code
WHERE product_instance = {{q .Instance}} AND {{.Covers .Measure}} AND state = 'silent' AND current
{{end}}

{{define "residuals"}}
SELECT d.detector_code AS detector_code, vs, ws, ts, bs, own.mark AS known,
    own.profile AS profile, own.mean AS mean, own.yesterday AS yesterday, own.recent AS recent,
    {{.Expanded}} AS ps, -- 0 on the first day of a detector
    arrayMap((v, w, p) -> w * if(known = 1, greatest(-{{.Clip}}, least({{.Clip}}, v - p)), v), vs, ws, ps) AS rs
FROM (
    SELECT detector_code,
        {{- range $i, $a := .Arrays}}
        {{- if $i}},{{end}}
        arrayConcat(arraySlice(arrayResize(anyIf({{$a}}, day != {{q $.Day}}), {{$.Before}}, 0.), {{$.Before}} - {{$.Lead}} + 1),
            arrayResize(anyIf({{$a}}, day = {{q $.Day}}), {{$.Length}}, 0.)) AS {{$a}}
        {{- end}}
    FROM {{.Tables}}.forecaster_values FINAL WHERE {{.Key}} AND day IN ({{q .Day}}, {{q .DayBefore}}) GROUP BY detector_code
) AS d
LEFT JOIN (
    SELECT *, 1 AS mark FROM {{.Tables}}.forecaster_profiles FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code != ''
) AS own ON d.detector_code = own.detector_code
{{end}}

{{define "days"}}
INSERT INTO {{.Tables}}.forecaster_days (product_instance, measure_type_code, day, detector_code, weights, sums, residual)
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code,
    sumResample(96, 192, 1)(w, slot), sumResample(96, 192, 1)(p * w + r, slot), sum(if(known = 1, r, 0.))
FROM ({{template "residuals" .}})
ARRAY JOIN arraySlice(ws, {{.Lead}} + 1) AS w, arraySlice(rs, {{.Lead}} + 1) AS r, arraySlice(ps, {{.Lead}} + 1) AS p,
    arraySlice({{.Slots}}, {{.Lead}} + 1) AS slot
WHERE w > 0
GROUP BY detector_code
{{end}}

{{define "windows"}}
SELECT detector_code, h, mean, yesterday, recent,
    {{- range .Windows}}
    arrayMap((a, b, c, d) -> (a - b) / (c - d + {{.Shrink}}),
        arraySlice({{.Sums}}, {{$.Lead}} + 2 - h - {{.From}}, {{$.Length}}),
        arraySlice({{.Sums}}, {{$.Lead}} + 2 - h - {{.To}}, {{$.Length}}),
        arraySlice({{.Weights}}, {{$.Lead}} + 2 - h - {{.From}}, {{$.Length}}),
        arraySlice({{.Weights}}, {{$.Lead}} + 2 - h - {{.To}}, {{$.Length}})
    ) AS {{.Column}},
    {{- end}}
    {{- range $i, $a := .Arrays}}{{if $i}},{{end}}
    arraySlice(d.{{$a}}, {{$.Lead}} + 1) AS {{$a}}
    {{- end}},
    arraySlice(d.ps, {{.Lead}} + 1) AS ps
FROM (
    SELECT *, arrayConcat([0.], arrayCumSum(ws)) AS cw, arrayConcat([0.], arrayCumSum(rs)) AS cr,
        arrayConcat([0.], arrayCumSum(sumForEach(ws) OVER ())) AS nw, arrayConcat([0.], arrayCumSum(sumForEach(rs) OVER ())) AS nr
    FROM ({{template "residuals" .}}) WHERE known = 1
) AS d
ARRAY JOIN {{.Horizons}} AS h
{{end}}

{{define "predictions"}}
SELECT detector_code, h, ps, arrayMap((v, p) -> v - p, vs, ps) AS y, ts, bs, low, high, x1, x2, x3, x4,
    arrayMap(slot -> intDiv(slot % {{.SlotsPerDay}}, {{.BlockSlots}}) + 1, arraySlice({{.Slots}}, {{.Lead}} + 1)) AS blocks,
    arrayMap(block -> exp(spread[block]), blocks) AS factors, -- of the bounds
    {{- range $i := .Limited}}
    arrayMap(x -> greatest(-{{$.Knee}}, least({{$.Knee}}, x)), x{{$i}}) AS x{{add $i 4}},
    {{- end}}
    {{- range $i := .Deep}}
    arrayMap((x, d) -> x * d, x{{$i}}, depth) AS x{{add $i 7}},
    {{- end}}
    x12, x13, arrayMap(p -> p - mean, ps) AS x14,
    arrayWithConstant(length(ps), yesterday) AS x15, arrayWithConstant(length(ps), recent) AS x16, arrayWithConstant(length(ps), 1.) AS x17,
    arrayMap(x -> greatest(-{{.MaxDepth}}, least({{.MaxDepth}}, x / {{.DepthUnit}})), x14) AS depth,
    arrayMap(({{join .Columns ", "}}) -> {{range $i, $x := .Columns}}{{if $i}} + {{end}}{{$x}} * w{{inc $i}}{{end}},
        {{join .Columns ", "}}) AS corrections
FROM (
    SELECT f.*, w.low AS low, w.high AS high, w.spread AS spread{{range $i, $x := .Columns}}, w.weights[{{inc $i}}] AS w{{inc $i}}{{end}}
    FROM ({{template "windows" .}}) AS f
    LEFT JOIN (
        SELECT d.detector_code AS detector_code, pool.horizon AS horizon, if(own.mark = 1, own.weights, pool.weights) AS weights,
            arrayResize(pool.spread, {{.Blocks}}, 0.) AS spread, if(own.mark = 1, own.low, pool.low) AS low, if(own.mark = 1, own.high, pool.high) AS high
        FROM (
            SELECT DISTINCT detector_code FROM {{.Tables}}.forecaster_values WHERE {{.Key}} AND day IN ({{q .Day}}, {{q .DayBefore}})
        ) AS d
        CROSS JOIN (SELECT * FROM {{.Tables}}.forecaster_weights FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code = '') AS pool
        LEFT JOIN (
            SELECT *, 1 AS mark FROM {{.Tables}}.forecaster_weights FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code != ''
        ) AS own ON own.detector_code = d.detector_code AND own.horizon = pool.horizon
    ) AS w ON w.detector_code = f.detector_code AND w.horizon = f.h
)
{{end}}

{{define "moments"}}
INSERT INTO {{.Tables}}.forecaster_moments (product_instance, measure_type_code, day, detector_code, horizon, moments, low, high, counts, misses)
WITH -- a bound moves by the share of errors beyond it that is not 10 %
    beyond -> if(sum(n) = 0, 0, 0.6 * sum(high - low) * least(1, sum(n) / 100) * (beyond / greatest(sum(n), 1) - 0.1)) AS move
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code, horizon, sumForEach(m),
    if(max(known) = 0, sum(first_low), sum(low) - move(sum(below))), if(max(known) = 0, sum(first_high), sum(high) + move(sum(above))),
    sumForEach(block_counts), sumForEach(block_misses)
FROM (
    SELECT detector_code, horizon, moments AS m, low, high, low < high AS known,
        0 AS n, 0 AS below, 0 AS above, 0. AS first_low, 0. AS first_high,
        arrayWithConstant({{.Blocks}}, 0.) AS block_counts, block_counts AS block_misses
    FROM {{.Tables}}.forecaster_moments FINAL
    WHERE {{.Key}} AND day = {{q .DayBefore}} AND length(moments) = {{inc (len .Products)}} -- early versions stored each product twice
    UNION ALL
    SELECT detector_code, toUInt16(h) AS horizon, [{{range .Products}}arrayDotProduct({{.}}), {{end}}arraySum(ts)] AS m,
        0. AS low, 0. AS high, 0 AS known,
        length(errors) AS n, arrayCount(e -> e < bound_low, errors) AS below, arrayCount(e -> e > bound_high, errors) AS above,
        if(n < 20, 0., arrayReduce('quantileExact(0.1)', errors)) AS first_low,
        if(n < 20, 0., arrayReduce('quantileExact(0.9)', errors)) AS first_high,
        arrayMap(k -> toFloat64(arrayCount((block, b) -> block = k AND b > 0, blocks, bs)), range(1, {{.Blocks}} + 1)) AS block_counts,
        arrayMap(k -> toFloat64(arrayCount((block, b, e) -> block = k AND b > 0 AND NOT (e BETWEEN bound_low AND bound_high), blocks, bs, us)),
            range(1, {{.Blocks}} + 1)) AS block_misses
    FROM (
        SELECT * EXCEPT (low, high), low AS bound_low, high AS bound_high, arrayFilter((u, b) -> b > 0, us, bs) AS errors,
            arrayMap((y, c) -> y - c, y, corrections) AS es, arrayMap((e, f) -> e / f, es, factors) AS us, arrayMap((t, e) -> t / greatest(abs(e), 1.), ts, es) AS shares
            {{- range $i, $x := .Columns}}, arrayMap((x, s) -> x * s, {{$x}}, shares) AS z{{inc $i}}{{end}}
        FROM ({{template "predictions" .}}) WHERE arrayMax(ts) > 0
    )
)
GROUP BY detector_code, horizon
SETTINGS max_block_size = 250
{{end}}

{{define "profiles"}}
INSERT INTO {{.Tables}}.forecaster_profiles
    (product_instance, measure_type_code, day, detector_code, profile, mean, yesterday, recent, weight)
WITH
    (a) -> arrayMap((x, l, r) -> x + 0.5 * l + 0.5 * r,
        a, arrayPushFront(arrayPopBack(a), a[1]), arrayPushBack(arrayPopFront(a), a[96])) AS smooth,
    (s, w, x, k) -> arrayMap((s, w, x) -> (s + k * x) / (w + k),
        smooth(arrayResize(s, 96, 0.)), smooth(arrayResize(w, 96, 0.)), x) AS refine
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code,
    arrayConcat(
        {{- range $i, $t := .Targets}}{{if $i}}, {{end}}
        refine(s2_{{$i}}, w2_{{$i}}, refine(s1_{{$i}}, w1_{{$i}}, refine(s0, w0, arrayWithConstant(96, mean), 5.), 5.), 12.)
        {{- end}}),
    mean, yesterday, recent, weight
FROM (
    SELECT detector_code, sumForEach(w) AS w0, sumForEach(s) AS s0,
        {{- range $i, $t := .Targets}}
        sumForEachIf(w, kind = {{$t.Kind}}) AS w1_{{$i}}, sumForEachIf(s, kind = {{$t.Kind}}) AS s1_{{$i}},
        sumForEachIf(w, class = {{$t.Class}}) AS w2_{{$i}}, sumForEachIf(s, class = {{$t.Class}}) AS s2_{{$i}},
        {{- end}}
        arraySum(s0) / arraySum(w0) AS mean, arraySum(w0) AS weight,
        sum(last_residual) / (sum(last_total) + 5) AS yesterday, sum(recent_residual) / (sum(recent_total) + 5) AS recent
    FROM (
        SELECT detector_code, class, multiIf(class = 7, 2, class = 6, 1, 0) AS kind,
            sumForEach(arrayMap(x -> x * decay, weights)) AS w, sumForEach(arrayMap(x -> x * decay, sums)) AS s,
            sumIf(residual, age = 1) AS last_residual, sumIf(total, age = 1) AS last_total,
            sum(residual * fast) AS recent_residual, sum(total * fast) AS recent_total
        FROM (
            SELECT detector_code, weights, sums, residual, arraySum(weights) AS total,
                if(has({{.Holidays}}, toString(day)), 7, toDayOfWeek(day)) AS class,
                dateDiff('day', day, toDate({{q .Day}})) AS age, pow(0.95, age) AS decay, pow(0.7, age - 1) AS fast
            FROM {{.Tables}}.forecaster_days FINAL
            WHERE {{.Key}} AND day < {{q .Day}} AND day >= toDate({{q .Day}}) - {{.History}}
        )
        GROUP BY detector_code, class
    )
    GROUP BY GROUPING SETS ((detector_code), ())
    HAVING arraySum(w0) > 0
)
{{end}}

{{define "weights"}}
INSERT INTO {{.Tables}}.forecaster_weights (product_instance, measure_type_code, day, detector_code, horizon, weights, low, high, spread)
WITH
    range(1, {{.K}} + 1) AS n,
    m -> arrayMap(i -> arraySlice(m, (i - 1) * ({{.K}} + 2) - intDiv(i * (i - 1), 2) + 1, {{.K}} + 2 - i), n) AS triangle,
    -- Rows start at the diagonal, since the matrix is symmetric, and are eliminated one after the other.
    top -> arrayMap(x -> x / top[1], arrayPopBack(arrayPopFront(top))) AS shares,
    top -> arrayMap(i -> arraySlice(top, i), range(2, length(top))) AS tails,
    m -> arrayFold((acc, k) -> (
        arrayMap((row, share, tail) -> arrayMap((x, p) -> x - share * p, row, tail),
            arrayPopFront(acc.1), shares(acc.1[1]), tails(acc.1[1])),
        arrayPushBack(acc.2, acc.1[1])), n, (m, CAST([], 'Array(Array(Float64))'))).2 AS eliminated,
    m -> arrayFold((beta, row) -> arrayPushFront(beta, (row[-1] - arrayDotProduct(arraySlice(row, 2, length(beta)), beta)) / row[1]),
        arrayReverse(eliminated(m)), CAST([], 'Array(Float64)')) AS solve,
    (m, d, e) -> arrayMap((row, d, e) ->
        arrayPushFront(arrayPushBack(arrayPopFront(arrayPopBack(row)), row[-1] + e), row[1] + d), m, d, e) AS ridge,
    learned AS (SELECT * FROM {{.Tables}}.forecaster_moments FINAL WHERE {{.Key}} AND day = {{q .DayBefore}}),
    pool AS (
        SELECT horizon, sumForEach(moments) AS total, triangle(total) AS a, arrayMap(row -> row[1], a) AS diagonal,
            arrayMap(x -> {{.Ridge}} * x / total[-1], diagonal) AS strength,
            solve(ridge(a, arrayMap(x -> 1e-3 * x + 1e-9, diagonal), arrayWithConstant({{.K}}, 0.))) AS beta,
            avgIf(low, low < high) AS usual_low, avgIf(high, low < high) AS usual_high,
            sumForEach(counts) AS counted, sumForEach(misses) AS missed
        FROM learned GROUP BY horizon
    )
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, '', horizon, beta, usual_low, usual_high,
    -- The logarithms grow by the share of errors outside of the bounds that is not 20 %.
    arrayMap((s, c, x) -> greatest(-0.7, least(1.4, s + least(1, c / 100) * (x / greatest(c, 1) - 0.2))),
        arrayResize(spread, {{.Blocks}}, 0.), counted, missed)
FROM pool LEFT JOIN (
    SELECT horizon, spread FROM {{.Tables}}.forecaster_weights FINAL WHERE {{.Key}} AND day = {{q .DayBefore}} AND detector_code = ''
) AS before USING horizon
UNION ALL
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, l.detector_code, l.horizon,
    solve(ridge(triangle(l.moments), arrayMap(x -> x + 1e-9, p.strength), arrayMap((s, y) -> s * y, p.strength, p.beta))),
    if(l.low < l.high, l.low, p.usual_low), if(l.low < l.high, l.high, p.usual_high), CAST([], 'Array(Float64)')
FROM learned AS l JOIN pool AS p ON l.horizon = p.horizon
{{end}}
