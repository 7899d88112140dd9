-- Constant value: all values have been equal for so long that it is less likely than 1 in 1,000,000 for this detector at these hours. A count
-- of 0 is not constant but without vehicles.
SELECT detector_code, measure_type_code, toDateTime(first, 'UTC') AS since,
    format('{} is {} in all intervals of the last {} hours; in these hours of earlier days, it was equal throughout an hour in {} % of cases',
        measure_type_code, toString(value), toString(run), toString(round(100 * exp(likelihood / run), 1))) AS rule
FROM {{.Runs}}
WHERE value != 0
