-- No data: no measurement for half an hour, or for two intervals of the detector if these are longer. Detectors that stopped together are a
-- dead feed instead.
SELECT detector_code, measure_type_code, until AS since,
    format('no {} since {} UTC; usually {} measurements per hour', measure_type_code, formatDateTime(until, '%F %H:%i'), toString(round(per_hour))) AS rule
FROM {{.Quiet}} AS quiet
LEFT JOIN {{.Open "silent"}} AS open USING (detector_code, measure_type_code)
WHERE open.found OR (measure_type_code, until) NOT IN
    (SELECT measure_type_code, until FROM {{.Quiet}} GROUP BY measure_type_code, until HAVING count() >= {{.Many}})
