{{- /* The statements of package archive, as templates. Parameters are in type query. */ -}}

{{define "cells"}}
SELECT detector_code,
    toUInt32(intDiv(toUnixTimestamp(timestamp_from) - {{.From}}, {{.Step}})) AS place,
    {{- if .Counted}}
    countIf(measure_type_code = {{q .Count}}) > 0 AS counted,
    sumIf(value, measure_type_code = {{q .Count}}) AS vehicles,
    {{- else}}
    false AS counted,
    0. AS vehicles,
    {{- end}}
    countIf(measure_type_code = {{q .Measure}} AND value > 0 AND value <= {{.Most}}) AS readings,
    avgIf(value, measure_type_code = {{q .Measure}} AND value > 0 AND value <= {{.Most}}) AS reading,
    readings > 0 AND (NOT counted OR vehicles > 0) AS usable,
    if(usable, if(counted, vehicles / (vehicles + 2), 0.6), 0.) AS w,
    if(usable, if(counted, vehicles / (vehicles + 3), 0.5), 0.) AS t,
    usable AND (NOT counted OR vehicles >= {{.Least}}) AS reliable,
    max(timestamp_to) AS seen
FROM {{.Archive}} FINAL
WHERE product_instance = {{q .Instance}} AND measure_type_code IN ({{q .Measure}}{{if .Counted}}, {{q .Count}}{{end}})
    AND timestamp_from >= fromUnixTimestamp({{.From}}) AND timestamp_from < fromUnixTimestamp({{.To}})
    AND timestamp_to <= fromUnixTimestamp({{.To}})
    {{- if .Received}} AND received_at >= fromUnixTimestamp({{.Received}}){{end}}
GROUP BY detector_code, place
{{end}}

{{define "dense"}}
SELECT detector_code,
    groupArrayInsertAt(0., {{.Places}})(if(usable, reading, 0.), place) AS vs,
    groupArrayInsertAt(0., {{.Places}})(w, place) AS ws,
    groupArrayInsertAt(0., {{.Places}})(t, place) AS ts,
    groupArrayInsertAt(0., {{.Places}})(toFloat64(reliable), place) AS bs,
    max(seen) AS latest
FROM ({{template "cells" .}}) GROUP BY detector_code
{{end}}

{{define "values"}}
INSERT INTO {{.Tables}}.forecaster_values (product_instance, measure_type_code, day, detector_code, vs, ws, ts, bs)
SELECT {{q .Instance}}, {{q .Measure}}, day, detector_code,
    groupArrayInsertAt(0., {{.Longest}})(if(usable, reading, 0.), position), groupArrayInsertAt(0., {{.Longest}})(w, position),
    groupArrayInsertAt(0., {{.Longest}})(t, position), groupArrayInsertAt(0., {{.Longest}})(toFloat64(reliable), position)
FROM (
    SELECT *, toDateTime({{.From}} + toInt64(place) * {{.Step}}, {{q .Zone}}) AS start, toDate(start) AS day,
        toUInt32(intDiv(toUnixTimestamp(start) - toUnixTimestamp(toStartOfDay(start)), {{.Step}})) AS position
    FROM ({{template "cells" .}})
)
GROUP BY day, detector_code
{{end}}

{{define "recent"}}
SELECT detector_code, vs, ws, bs, latest FROM ({{template "dense" .}}) ORDER BY detector_code
{{end}}

{{define "residuals"}}
SELECT d.detector_code AS detector_code, vs, ws, ts, bs, pool.mark AS known,
    if(own.mark = 1, own.profile, pool.profile) AS profile,
    if(own.mark = 1, own.mean, pool.mean) AS mean,
    if(own.mark = 1, own.yesterday, pool.yesterday) AS yesterday,
    if(own.mark = 1, own.recent, pool.recent) AS recent,
    {{.Expanded}} AS ps,
    arrayMap((v, w, p) -> w * if(pool.mark = 1, greatest(-{{.Clip}}, least({{.Clip}}, v - p)), v), vs, ws, ps) AS rs
FROM (
    SELECT detector_code, 1 AS one,
        {{- range $i, $a := .Arrays}}
        arrayConcat(arraySlice(arrayResize(anyIf({{$a}}, day != {{q $.Day}}), {{$.Before}}, 0.), {{$.Before}} - {{$.Lead}} + 1), arrayResize(anyIf({{$a}}, day = {{q $.Day}}), {{$.Length}}, 0.)) AS {{$a}}{{if lt $i 3}},{{end}}
        {{- end}}
    FROM {{.Tables}}.forecaster_values FINAL WHERE {{.Key}} AND day IN ({{q .Day}}, {{q .DayBefore}}) GROUP BY detector_code
) AS d
LEFT JOIN (SELECT *, 1 AS mark FROM {{.Tables}}.forecaster_profiles FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code != '') AS own
    ON d.detector_code = own.detector_code
LEFT JOIN (SELECT *, 1 AS mark FROM {{.Tables}}.forecaster_profiles FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code = '') AS pool
    ON d.one = pool.mark
{{end}}

{{define "days"}}
INSERT INTO {{.Tables}}.forecaster_days (product_instance, measure_type_code, day, detector_code, weights, sums, residual)
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code,
    groupArrayInsertAt(0., 96)(weight, place), groupArrayInsertAt(0., 96)(total, place), sum(difference)
FROM (
    SELECT detector_code, toUInt32(slot - 96) AS place, sum(w) AS weight, sum(p * w + r) AS total, sum(if(known = 1, r, 0.)) AS difference
    FROM ({{template "residuals" .}})
    ARRAY JOIN arraySlice(ws, {{.Lead}} + 1) AS w, arraySlice(rs, {{.Lead}} + 1) AS r, arraySlice(ps, {{.Lead}} + 1) AS p,
        arraySlice({{.Slots}}, {{.Lead}} + 1) AS slot
    WHERE w > 0
    GROUP BY detector_code, place
)
GROUP BY detector_code
{{end}}

{{define "windows"}}
SELECT detector_code, h, mean, yesterday, recent,
    {{- range .Windows}}
    arrayMap((a, b, c, d) -> (a - b) / (c - d + {{.Shrink}}), arraySlice({{.Sums}}, {{$.Lead}} + 2 - h - {{.From}}, {{$.Length}}),
        arraySlice({{.Sums}}, {{$.Lead}} + 2 - h - {{.To}}, {{$.Length}}), arraySlice({{.Weights}}, {{$.Lead}} + 2 - h - {{.From}}, {{$.Length}}),
        arraySlice({{.Weights}}, {{$.Lead}} + 2 - h - {{.To}}, {{$.Length}})) AS {{.Name}},
    {{- end}}
    arraySlice(ps, {{.Lead}} + 1) AS qs, arraySlice(vs, {{.Lead}} + 1) AS us, arraySlice(ts, {{.Lead}} + 1) AS os, arraySlice(bs, {{.Lead}} + 1) AS ks
FROM (
    SELECT *, arrayConcat([0.], arrayCumSum(ws)) AS cw, arrayConcat([0.], arrayCumSum(rs)) AS cr,
        arrayConcat([0.], arrayCumSum(sumForEach(ws) OVER ())) AS nw, arrayConcat([0.], arrayCumSum(sumForEach(rs) OVER ())) AS nr
    FROM ({{template "residuals" .}})
)
ARRAY JOIN {{.Horizons}} AS h
{{end}}

{{define "predictions"}}
SELECT detector_code, h, j, x1, x2, x3, x4,
    greatest(-{{.Knee}}, least({{.Knee}}, x1)) AS x5, greatest(-{{.Knee}}, least({{.Knee}}, x2)) AS x6, greatest(-{{.Knee}}, least({{.Knee}}, x3)) AS x7,
    x1 * depth AS x8, x2 * depth AS x9, x3 * depth AS x10, x4 * depth AS x11,
    x12, x13, p - mean AS x14, yesterday AS x15, recent AS x16, 1. AS x17,
    greatest(-{{.MaxDepth}}, least({{.MaxDepth}}, x14 / {{.DepthUnit}})) AS depth, p, v - p AS y, t, b, low, high,
    {{range $i, $x := .Columns}}{{if $i}} + {{end}}{{$x}} * w{{inc $i}}{{end}} AS correction
FROM (
    SELECT f.*, w.low AS low, w.high AS high{{range $i, $x := .Columns}}, w.weights[{{inc $i}}] AS w{{inc $i}}{{end}}
    FROM ({{template "windows" .}}) AS f
    LEFT JOIN (
        SELECT d.detector_code AS detector_code, pool.horizon AS horizon, if(own.mark = 1, own.weights, pool.weights) AS weights,
            if(own.mark = 1, own.low, pool.low) AS low, if(own.mark = 1, own.high, pool.high) AS high
        FROM (SELECT DISTINCT detector_code FROM {{.Tables}}.forecaster_values WHERE {{.Key}} AND day IN ({{q .Day}}, {{q .DayBefore}})) AS d
        CROSS JOIN (SELECT * FROM {{.Tables}}.forecaster_weights FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code = '') AS pool
        LEFT JOIN (SELECT *, 1 AS mark FROM {{.Tables}}.forecaster_weights FINAL WHERE {{.Key}} AND day = {{q .Day}} AND detector_code != '') AS own
            ON own.detector_code = d.detector_code AND own.horizon = pool.horizon
    ) AS w ON w.detector_code = f.detector_code AND w.horizon = f.h
)
ARRAY JOIN {{range .Windows}}{{.Name}} AS {{.Column}}, {{end}}qs AS p, us AS v, os AS t, ks AS b, arrayEnumerate(qs) AS j
{{end}}

{{define "moments"}}
INSERT INTO {{.Tables}}.forecaster_moments (product_instance, measure_type_code, day, detector_code, horizon, moments, low, high)
WITH -- Σ a × b is the covariance of a and b plus the product of their means, times n; one row for each feature
    (covariances, means, n) -> arrayFlatten(arrayMap((row, a) -> arrayMap((c, b) -> n * (c + a * b), row, means),
        arrayPopBack(covariances), arrayPopBack(means))) AS products
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code, horizon, sumForEach(m),
    if(max(known) = 0, sum(first_low), sum(low) - if(sum(n) = 0, 0, 0.6 * sum(high - low) * least(1, sum(n) / 100) * (sum(below) / greatest(sum(n), 1) - 0.1))),
    if(max(known) = 0, sum(first_high), sum(high) + if(sum(n) = 0, 0, 0.6 * sum(high - low) * least(1, sum(n) / 100) * (sum(above) / greatest(sum(n), 1) - 0.1)))
FROM (
    SELECT detector_code, horizon, moments AS m, low, high, low < high AS known, 0 AS n, 0 AS below, 0 AS above, 0. AS first_low, 0. AS first_high
    FROM {{.Tables}}.forecaster_moments FINAL WHERE {{.Key}} AND day = {{q .DayBefore}}
    UNION ALL
    SELECT detector_code, toUInt16(h) AS horizon,
        arrayPushBack(products(covarPopMatrix({{range .Columns}}s * {{.}}, {{end}}s * y), [{{range .Columns}}avg(s * {{.}}), {{end}}avg(s * y)], count()), sum(t)) AS m,
        0. AS low, 0. AS high, 0 AS known, countIf(b > 0) AS n, countIf(b > 0 AND e < bound_low) AS below, countIf(b > 0 AND e > bound_high) AS above,
        if(n < 20, 0., quantileExactIf(0.1)(e, b > 0)) AS first_low, if(n < 20, 0., quantileExactIf(0.9)(e, b > 0)) AS first_high
    FROM (
        SELECT * EXCEPT (low, high), low AS bound_low, high AS bound_high, y - correction AS e, sqrt(t / greatest(abs(e), 1.)) AS s
        FROM ({{template "predictions" .}}) WHERE t > 0
    )
    GROUP BY detector_code, h
)
GROUP BY detector_code, horizon
{{end}}

{{define "profiles"}}
INSERT INTO {{.Tables}}.forecaster_profiles (product_instance, measure_type_code, day, detector_code, profile, mean, yesterday, recent, weight)
WITH
    (a) -> arrayMap((x, l, r) -> x + 0.5 * l + 0.5 * r, a, arrayPushFront(arrayPopBack(a), a[1]), arrayPushBack(arrayPopFront(a), a[96])) AS smooth,
    (s, w, x, k) -> arrayMap((s, w, x) -> (s + k * x) / (w + k), smooth(arrayResize(s, 96, 0.)), smooth(arrayResize(w, 96, 0.)), x) AS refine
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, detector_code,
    arrayConcat({{range $i, $t := .Targets}}{{if $i}}, {{end}}refine(s2_{{$i}}, w2_{{$i}}, refine(s1_{{$i}}, w1_{{$i}}, refine(s0, w0, arrayWithConstant(96, mean), 5.), 5.), 12.){{end}}),
    mean, yesterday, recent, weight
FROM (
    SELECT detector_code, sumForEach(w) AS w0, sumForEach(s) AS s0,
        {{- range $i, $t := .Targets}}
        sumForEachIf(w, kind = {{$t.Kind}}) AS w1_{{$i}}, sumForEachIf(s, kind = {{$t.Kind}}) AS s1_{{$i}},
        sumForEachIf(w, class = {{$t.Class}}) AS w2_{{$i}}, sumForEachIf(s, class = {{$t.Class}}) AS s2_{{$i}},
        {{- end}}
        arraySum(s0) / arraySum(w0) AS mean, arraySum(w0) AS weight,
        sumIf(residual, age = 1) / (sumIf(total, age = 1) + 5) AS yesterday,
        sum(residual * pow(0.7, age - 1)) / (sum(total * pow(0.7, age - 1)) + 5) AS recent
    FROM (
        SELECT detector_code, dateDiff('day', day, toDate({{q .Day}})) AS age, residual, arraySum(weights) AS total,
            if(has({{.Holidays}}, toString(day)), 7, toDayOfWeek(day)) AS class, multiIf(class = 7, 2, class = 6, 1, 0) AS kind,
            arrayMap(x -> x * pow(0.95, age), weights) AS w, arrayMap(x -> x * pow(0.95, age), sums) AS s
        FROM {{.Tables}}.forecaster_days FINAL
        WHERE {{.Key}} AND day < {{q .Day}} AND day >= toDate({{q .Day}}) - {{.History}}
    )
    GROUP BY GROUPING SETS ((detector_code), ())
    HAVING arraySum(w0) > 0
)
{{end}}

{{define "weights"}}
INSERT INTO {{.Tables}}.forecaster_weights (product_instance, measure_type_code, day, detector_code, horizon, weights, low, high)
WITH
    range(1, {{.K}} + 1) AS n,
    m -> arrayMap(i -> arraySlice(m, (i - 1) * ({{.K}} + 1) + 1, {{.K}} + 1), n) AS matrix,
    m -> arrayMap(row -> row[1], arrayFold((acc, k) -> arrayMap((row, share, pivot) -> arrayMap((x, p) -> x - share * p, arrayPopFront(row), pivot),
        acc, arrayMap((row, i, top) -> if(i = k, top - 1, row[1]) / top, acc, n, arrayWithConstant({{.K}}, acc[k][1])), arrayWithConstant({{.K}}, arrayPopFront(acc[k]))),
        n, m)) AS solve,
    (m, d, e) -> arrayMap((row, i, d, e) -> arrayMap((x, j) -> x + if(i = j, d, 0.) + if(j = {{.K}} + 1, e, 0.), row, range(1, {{.K}} + 2)), m, n, d, e) AS ridge,
    learned AS (SELECT * FROM {{.Tables}}.forecaster_moments FINAL WHERE {{.Key}} AND day = {{q .DayBefore}}),
    pool AS (
        SELECT horizon, sumForEach(moments) AS total, matrix(total) AS a, arrayMap(i -> a[i][i], n) AS diagonal,
            arrayMap(x -> {{.Ridge}} * x / total[-1], diagonal) AS strength,
            solve(ridge(a, arrayMap(x -> 1e-3 * x + 1e-9, diagonal), arrayWithConstant({{.K}}, 0.))) AS beta,
            avgIf(low, low < high) AS usual_low, avgIf(high, low < high) AS usual_high
        FROM learned GROUP BY horizon
    )
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, '', horizon, beta, usual_low, usual_high FROM pool
UNION ALL
SELECT {{q .Instance}}, {{q .Measure}}, {{q .Day}}, l.detector_code, l.horizon,
    solve(ridge(matrix(l.moments), arrayMap(x -> x + 1e-9, p.strength), arrayMap((s, y) -> s * y, p.strength, p.beta))),
    if(l.low < l.high, l.low, p.usual_low), if(l.low < l.high, l.high, p.usual_high)
FROM learned AS l JOIN pool AS p ON l.horizon = p.horizon
{{end}}
