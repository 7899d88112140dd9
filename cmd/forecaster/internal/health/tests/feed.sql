-- A dead feed: at least 20 detectors and a fifth of the product instance stopped in the same quarter of an hour.
SELECT '' AS detector_code, measure_type_code, min(until) AS since,
    format('{} detectors stopped sending {} together at {} UTC', toString(count()), measure_type_code, formatDateTime(min(until), '%F %H:%i')) AS rule
FROM
(
    SELECT * FROM {{.Quiet}} AS quiet LEFT JOIN {{.Open "silent"}} AS open USING (detector_code, measure_type_code) WHERE NOT open.found
)
GROUP BY measure_type_code, until HAVING count() >= {{.Many}}
