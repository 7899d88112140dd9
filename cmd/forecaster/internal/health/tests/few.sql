-- Too few values: less than half of the usual number in the last three hours. If a fifth of the detectors have too few, those of a feed
-- were missing for a while.
SELECT detector_code, measure_type_code, since,
    format('{} of usually {} {} values from {} to {} UTC', toString(values), toString(round(usual)), measure_type_code,
        formatDateTime({{.LastHour}} - INTERVAL 3 HOUR, '%F %H:%i'), formatDateTime({{.LastHour}}, '%H:%i')) AS rule
FROM
(
    SELECT detector_code, measure_type_code, min(hour) AS since, sum(count) AS values, 3 * any(per_hour) AS usual,
        count() OVER (PARTITION BY measure_type_code) AS together
    FROM {{.Recent 3}}
    WHERE days >= 2
    GROUP BY detector_code, measure_type_code
    HAVING values < 0.5 * usual
)
WHERE together < {{.Many}}
