-- A dead feed: a fifth of the detectors, at least 5, stopped in the same quarter of an hour. The rule says if measurements are still
-- received from them, but none that is newer: a client sends the same ones again and again.
SELECT '' AS detector_code, measure_type_code, min(until) AS since,
    format('{} detectors stopped sending {} together at {} UTC', toString(count()), measure_type_code, formatDateTime(min(until), '%F %H:%i'))
        || if(max(received) > {{.At}} - INTERVAL 15 MINUTE,
            format('; old measurements are still received, the last at {} UTC', formatDateTime(max(received), '%F %H:%i')), '') AS rule
FROM {{.Quiet}} AS quiet
LEFT JOIN {{.Open "silent"}} AS open USING (detector_code, measure_type_code)
LEFT JOIN
(
    SELECT measure_type_code, detector_code, toDateTime(max(measurement.3), 'UTC') AS received
    FROM {{.Latest}} WHERE product_instance = {{q .Instance}} GROUP BY measure_type_code, detector_code
) AS l USING (detector_code, measure_type_code)
WHERE NOT open.found
GROUP BY measure_type_code, until HAVING count() >= {{.Many}}
