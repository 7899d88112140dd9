-- Wrong clock: moved by whole hours, the counts of the last two days fit the usual daily curve much better. Square roots are compared, so that
-- counts of all sizes vary alike. Detectors with less than 300 vehicles a day are not tested. If many clocks are wrong alike, the day is unusual.
SELECT detector_code, measure_type_code, {{.LastHour}} - INTERVAL 48 HOUR AS since,
    format('{} of the last 48 hours fits the usual daily curve {} % better if its clock is moved by {} h', measure_type_code,
        toString(round(100 * (1 - best.1 / own))), toString(best.2)) AS rule
FROM
(
    SELECT detector_code, measure_type_code, best, own, count() OVER (PARTITION BY measure_type_code, best.2) AS together
    FROM
    (
        SELECT detector_code, measure_type_code,
            groupArray((place % 24, sqrt(average * per_hour), intDiv(place, 24))) AS curve, arrayMap(x -> sqrt(greatest(x, 0) * any(per_hour)), any(levels)) AS usual,
            arrayMap(shift -> (arraySum(x -> pow(x.2 - usual[24 * x.3 + (x.1 + shift + 24) % 24 + 1], 2), curve), shift), range(-12, 13)) AS fits,
            arrayMin(fits) AS best, fits[13].1 AS own
        FROM {{.Recent 48}}
        WHERE days >= 5 AND startsWith(measure_type_code, 'flow')
        GROUP BY detector_code, measure_type_code
        HAVING count() >= 40 AND sum(average * per_hour) >= 600 AND best.2 != 0 AND best.1 < 0.75 * own AND own - best.1 > 20
    )
)
WHERE together < {{.Many}}
