-- Swapped: two detectors of a street each follow the usual daily curve of the other one much better than their own.
WITH curves AS
(
    SELECT measure_type_code, detector_code, any(street) AS road, arraySort(groupArray((place % 24, average, place))) AS curve, any(levels) AS usual
    FROM {{.Recent 24}} AS r JOIN {{.Streets}} AS s USING (detector_code)
    WHERE days >= 5 AND level >= 0 AND street != ''
    GROUP BY measure_type_code, detector_code HAVING count() >= 16
)
SELECT a.detector_code AS detector_code, measure_type_code, {{.LastHour}} - INTERVAL 24 HOUR AS since,
    format('{} of the last 24 hours follows the usual curve of {} (deviation {}) and not its own (deviation {}), and that of {} its own',
        measure_type_code, b.detector_code, toString(round(crossed, 2)), toString(round(straight, 2)), b.detector_code) AS rule,
    arraySum(x -> abs(x.2 - a.usual[x.3 + 1]), a.curve) / arraySum(x -> x.2 + a.usual[x.3 + 1], a.curve)
        + arraySum(x -> abs(x.2 - b.usual[x.3 + 1]), b.curve) / arraySum(x -> x.2 + b.usual[x.3 + 1], b.curve) AS straight,
    arraySum(x -> abs(x.2 - b.usual[x.3 + 1]), a.curve) / arraySum(x -> x.2 + b.usual[x.3 + 1], a.curve)
        + arraySum(x -> abs(x.2 - a.usual[x.3 + 1]), b.curve) / arraySum(x -> x.2 + a.usual[x.3 + 1], b.curve) AS crossed
FROM curves AS a JOIN curves AS b USING (measure_type_code, road)
WHERE a.detector_code != b.detector_code AND crossed < 0.5 * straight AND straight > 0.15
ORDER BY crossed LIMIT 1 BY a.detector_code, measure_type_code
