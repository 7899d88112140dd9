-- Too few values: less than half of the usual number in the last three hours.
SELECT detector_code, measure_type_code, min(hour) AS since,
    format('{} of usually {} {} values from {} to {} UTC', toString(sum(count)), toString(round(3 * any(per_hour))), measure_type_code,
        formatDateTime({{.LastHour}} - INTERVAL 3 HOUR, '%F %H:%i'), formatDateTime({{.LastHour}}, '%H:%i')) AS rule
FROM {{.Recent 3}}
WHERE days >= 2
GROUP BY detector_code, measure_type_code
HAVING sum(count) < 0.5 * 3 * any(per_hour)
