{{- /* What several tests use. */ -}}

{{define "hours" -}}
(
    SELECT measure_type_code, detector_code, hour, count_1 + count_2 + count_3 + count_4 AS count, minimum, maximum,
        ((thousandths_1 + thousandths_2 + thousandths_3 + thousandths_4) / 1000 + other_1 + other_2 + other_3 + other_4) / count AS average,
        {{.Place "hour"}} AS place
    FROM {{.Hours}} FINAL
    WHERE product_instance = {{q .Instance}} AND hour >= {{.LastHour}} - INTERVAL {{.Back}} HOUR AND hour < {{.LastHour}} AND count > 0
)
{{- end}}

{{define "today" -}}
(SELECT * FROM {{.Usual}} FINAL WHERE product_instance = {{q .Instance}} AND day = {{q .Day}})
{{- end}}

{{define "recent" -}}
(
    SELECT h.*, u.per_hour AS per_hour, u.levels AS levels, u.levels[place + 1] AS level, u.days AS days,
        u.lowest AS lowest, u.highest AS highest, u.noise AS noise
    FROM {{template "hours" .}} AS h JOIN {{template "today" .}} AS u USING (measure_type_code, detector_code)
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
    -- Detectors of which all values of the latest hours, at least two, are equal, and the probability of that as a logarithm: how often
    -- the values of these hours of the day are usually equal, at least 2 % each.
    SELECT measure_type_code, detector_code, value, run, hours[run].1 AS first,
        arraySum(x -> log(greatest(u.constant[x.4 % 24 + 1], 0.02)), arraySlice(hours, 1, run)) AS likelihood
    FROM
    (
        SELECT measure_type_code, detector_code, arrayReverseSort(groupArray((toUnixTimestamp(hour), minimum, maximum, place))) AS hours,
            hours[1].2 AS value, toInt64(arrayFirstIndex(x -> x.2 != value OR x.3 != value, hours)) AS other,
            if(other = 0, toInt64(length(hours)), other - 1) AS run
        FROM {{.Past 24}}
        WHERE (measure_type_code, detector_code) IN (SELECT measure_type_code, detector_code FROM {{.Past 1}} WHERE minimum = maximum)
        GROUP BY measure_type_code, detector_code
        HAVING run >= 2
    ) AS latest JOIN {{template "today" .}} AS u USING (measure_type_code, detector_code)
    WHERE u.days >= 2 AND likelihood < -13.8
)
{{- end}}

{{define "zeros" -}}
(
    -- Counts that have been 0 for too long, and the speed that the detector or lane has reported meanwhile; -1: none. Empty if a fifth of the
    -- network is at 0, as on a day without traffic.
    SELECT runs.*, if(s.values = 0, -1, s.speed) AS speed
    FROM (SELECT *, countIf(value = 0) OVER (PARTITION BY measure_type_code) AS together FROM {{.Runs}}) AS runs
    LEFT JOIN
    (
        SELECT detector_code, replaceOne(measure_type_code, 'speed', 'flow') AS measure_type_code, avg(average) AS speed, count() AS values
        FROM {{.Past 2}} WHERE startsWith(measure_type_code, 'speed') GROUP BY detector_code, measure_type_code
    ) AS s USING (detector_code, measure_type_code)
    WHERE value = 0 AND together < {{.Many}}
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
