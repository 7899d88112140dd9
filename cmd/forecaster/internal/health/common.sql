{{- /* What several tests use. */ -}}

{{define "recent" -}}
(
    SELECT h.*, u.per_hour AS per_hour, u.levels AS levels, u.levels[place + 1] AS level, u.constant AS constant, u.days AS days,
        u.lowest AS lowest, u.highest AS highest, u.noise AS noise
    FROM
    (
        SELECT measure_type_code, detector_code, hour, count_1 + count_2 + count_3 + count_4 AS count, minimum, maximum,
            ((thousandths_1 + thousandths_2 + thousandths_3 + thousandths_4) / 1000 + other_1 + other_2 + other_3 + other_4) / count AS average,
            {{.Place "hour"}} AS place
        FROM {{.Hours}} FINAL
        WHERE product_instance = {{q .Instance}} AND hour >= {{.LastHour}} - INTERVAL {{.Back}} HOUR AND hour < {{.LastHour}} AND count > 0
    ) AS h
    JOIN (SELECT * FROM {{.Usual}} FINAL WHERE product_instance = {{q .Instance}} AND day = {{q .Day}}) AS u USING (measure_type_code, detector_code)
)
{{- end}}

{{define "quiet" -}}
(
    -- Detectors whose measurements have stopped; known reports whether they have stopped within three hours.
    SELECT u.measure_type_code AS measure_type_code, u.detector_code AS detector_code, u.per_hour AS per_hour, n.newest > 0 AS known,
        if(known, n.newest, {{.At}} - INTERVAL 3 HOUR) AS until, greatest(1800, 2 * 3600 / u.per_hour) AS window
    FROM (SELECT * FROM {{.Usual}} FINAL WHERE product_instance = {{q .Instance}} AND day = {{q .Day}} AND days >= 2) AS u
    LEFT JOIN
    (
        SELECT measure_type_code, detector_code, max(hour + INTERVAL multiIf(count_4 > 0, 60, count_3 > 0, 45, count_2 > 0, 30, 15) MINUTE) AS newest
        FROM {{.Hours}} FINAL
        WHERE product_instance = {{q .Instance}} AND hour >= {{.At}} - INTERVAL 3 HOUR AND hour < {{.At}}
        GROUP BY measure_type_code, detector_code
    ) AS n USING (measure_type_code, detector_code)
    WHERE until <= {{.At}} - toIntervalSecond(window)
)
{{- end}}

{{define "runs" -}}
(
    -- Detectors of which all values of the latest hours are equal, and the probability of that as a logarithm: how often the values of
    -- these hours of the day are usually equal, at least 2 % each.
    SELECT measure_type_code, detector_code, arraySort(x -> -x.1, groupArray((toUnixTimestamp(hour), minimum, maximum, count, constant[place % 24 + 1]))) AS hours,
        any(per_hour) AS per_hour, hours[1].2 AS value,
        if(arrayExists(x -> x.2 != value OR x.3 != value, hours), toInt64(arrayFirstIndex(x -> x.2 != value OR x.3 != value, hours)) - 1, toInt64(length(hours))) AS run,
        arraySum(x -> log(greatest(x.5, 0.02)), arraySlice(hours, 1, run)) AS likelihood, hours[run].1 AS first
    FROM {{.Recent 24}}
    WHERE days >= 2
    GROUP BY measure_type_code, detector_code
    HAVING run >= 2 AND likelihood < -13.8 AND hours[1].1 = toUnixTimestamp({{.LastHour}}) - 3600
)
{{- end}}

{{define "zeros" -}}
(
    -- Counts that have been 0 for too long, and the speed that the detector or lane has reported meanwhile; -1: none. Empty if a fifth of the
    -- network is at 0, as on a day without traffic.
    SELECT runs.*, if(s.values = 0, -1, s.speed) AS speed
    FROM {{.Runs}} AS runs
    LEFT JOIN
    (
        SELECT detector_code, replaceOne(measure_type_code, 'speed', 'flow') AS measure_type_code, avg(average) AS speed, count() AS values
        FROM {{.Recent 2}} WHERE startsWith(measure_type_code, 'speed') GROUP BY detector_code, measure_type_code
    ) AS s USING (detector_code, measure_type_code)
    WHERE value = 0 AND measure_type_code NOT IN
        (SELECT measure_type_code FROM {{.Runs}} WHERE value = 0 GROUP BY measure_type_code HAVING count() >= {{.Many}})
)
{{- end}}

{{define "compared" -}}
(
    -- The level of the last hours by day as a logarithm of what is usual for these hours, and that of the neighbours: the detectors of the
    -- street if there are at least four, otherwise all.
    SELECT *, if(street != '' AND count() OVER s >= 4, quantileExact(0.5)(difference) OVER s, quantileExact(0.5)(difference) OVER w) AS neighbours,
        difference - neighbours AS apart
    FROM
    (
        SELECT measure_type_code, detector_code, any(noise) AS noise, uniqExact(hour) AS hours, sum(count) AS intervals,
            sum(average * count) / intervals AS now, sum(level * count) / intervals AS usual, log(now / usual) AS difference,
            intDiv(toUnixTimestamp({{.LastHour}}) - toUnixTimestamp(hour) - 1, 86400) AS age
        FROM {{.Recent .Compared}}
        WHERE level > 0 AND days >= 5 AND toHour(hour, {{q .Zone}}) BETWEEN 5 AND 21
        GROUP BY measure_type_code, detector_code, age HAVING usual > 0 AND now > 0
    ) AS l
    LEFT JOIN {{.Streets}} AS d USING (detector_code)
    WINDOW s AS (PARTITION BY measure_type_code, age, street), w AS (PARTITION BY measure_type_code, age)
)
{{- end}}
