-- Jump of level: the last 24 hours are at least half as high again as usual for these hours, or at most two thirds of that, compared with the
-- neighbours. Detectors whose own days differ much, or that have less than 8 usual hours or 100 in total, are not tested.
SELECT detector_code, measure_type_code, {{.LastHour}} - INTERVAL 24 HOUR AS since,
    format('{} averages {} in the last 24 hours, {} of the usual {} for these hours; its neighbours are at {} of theirs, its own days within {} %',
        measure_type_code, toString(round(now, 1)), toString(round(exp(difference), 2)), toString(round(usual, 1)),
        toString(round(exp(neighbours), 2)), toString(round(100 * noise))) AS rule
FROM {{.Level 24}}
WHERE hours >= 8 AND usual * intervals >= 100 AND noise < 0.2 AND abs(apart) > greatest(log(1.5), 3 * noise) AND abs(neighbours) < 0.3
