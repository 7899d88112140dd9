-- A value without vehicles: the count is 0 for so long that it is less likely than 1 in 1,000,000 at these hours, but a speed is reported.
SELECT detector_code, measure_type_code, toDateTime(first, 'UTC') AS since,
    format('{} is 0 in all intervals of the last {} hours, but the speed is {}; in these hours of earlier days, {} was equal throughout an hour in {} % of cases',
        measure_type_code, toString(run), toString(round(speed, 1)), measure_type_code, toString(round(100 * exp(likelihood / run), 1))) AS rule
FROM {{.Zeros}}
WHERE speed > 0
