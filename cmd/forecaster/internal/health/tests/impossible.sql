-- Impossible combination: in two hours in a row, an occupancy without vehicles, or vehicles without an occupancy.
SELECT detector_code, occupancy_type AS measure_type_code, min(hour) AS since,
    format('from {} to {} UTC, {} is {} on average, but {} is {}', formatDateTime({{.LastHour}} - INTERVAL 2 HOUR, '%F %H:%i'),
        formatDateTime({{.LastHour}}, '%H:%i'), occupancy_type, toString(round(avg(occupancy), 2)),
        replaceOne(occupancy_type, 'occupancy', 'flow'), toString(round(avg(flow), 2))) AS rule
FROM
(
    SELECT detector_code, hour, 'occupancy' || replaceRegexpOne(measure_type_code, '^(occupancy|flow)', '') AS occupancy_type,
        anyIf(average, startsWith(measure_type_code, 'occupancy')) AS occupancy, anyIf(maximum, startsWith(measure_type_code, 'flow')) AS most,
        anyIf(average, startsWith(measure_type_code, 'flow')) AS flow
    FROM {{.Recent 2}}
    WHERE startsWith(measure_type_code, 'occupancy') OR startsWith(measure_type_code, 'flow')
    GROUP BY detector_code, occupancy_type, hour
    HAVING count() = 2 AND (most = 0 AND occupancy > 1 OR occupancy = 0 AND flow > 10)
)
GROUP BY detector_code, occupancy_type
HAVING count() = 2
