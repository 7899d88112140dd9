-- Drift: on each of the last three days, the level is more than a tenth apart from usual, compared with the neighbours, and always in the same
-- direction. Only detectors whose own days differ by less than a tenth are tested.
SELECT detector_code, measure_type_code, {{.LastHour}} - INTERVAL 72 HOUR AS since,
    format('{} is {} % from usual on each of the last three days, compared with its neighbours; its own days differ by {} %',
        measure_type_code, arrayStringConcat(arrayMap(x -> toString(round(100 * (exp(x.2) - 1))), arraySort(x -> -x.1, groupArray((age, apart)))), ', '),
        toString(round(100 * any(noise), 1))) AS rule
FROM {{.Level 72}}
WHERE hours >= 8 AND usual * intervals >= 100 AND noise < 0.08
GROUP BY detector_code, measure_type_code
HAVING count() = 3 AND (min(apart) > 0.1 OR max(apart) < -0.1) AND max(abs(neighbours)) < 0.3
