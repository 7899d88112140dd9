INSERT INTO {{.Health}} (product_instance, detector_code, measure_type_code, state, first_at, last_at, rule)
SELECT {{q .Instance}}, found.detector_code, found.measure_type_code, {{q .State}}, if(open.found, open.first_at, toDateTime(found.since, 'UTC')), {{.At}}, found.rule
FROM
(
{{.Test}}
) AS found
LEFT JOIN {{.Open .State}} AS open USING (detector_code, measure_type_code)
