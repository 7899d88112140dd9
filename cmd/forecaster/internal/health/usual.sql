{{- /* What is usual for each detector and measure type, from the hours of the 28 days before a day. Kinds of day are 0: workday,
       1: Saturday, 2: Sunday or holiday; level and noise are of complete hours. The lag is the length of an interval plus the time from its
       end to the acceptance of its measurement, at noon of the last day: 0 if there is none. Hours in which the detector was sick are not usual.
       If too few others are left, what was usual the day before remains: a detector that stays stuck stays named. */ -}}
INSERT INTO {{.Usual}}
    (product_instance, measure_type_code, day, detector_code, days, per_hour, levels, constant, lowest, highest, noise, lag)
WITH
    hours AS
    (
        SELECT measure_type_code, detector_code, hour, count_1 + count_2 + count_3 + count_4 AS count, minimum, maximum,
            ((thousandths_1 + thousandths_2 + thousandths_3 + thousandths_4) / 1000 + other_1 + other_2 + other_3 + other_4) / count AS average,
            {{.Place "hour"}} AS place
        FROM {{.Hours}} FINAL
        WHERE product_instance = {{q .Instance}} AND hour >= {{.From}} AND hour < {{.To}} AND {{.Good}}
    ),
    learned AS
    (
        SELECT measure_type_code, detector_code, max(days) AS days, max(usual_count) AS per_hour,
            groupArrayInsertAt(-1., 72)(if(days < 2, -1., level), place) AS levels,
            arrayMap((c, n) -> c / greatest(n, 1), sumResample(0, 24, 1)(same, place % 24), sumResample(0, 24, 1)(days, place % 24)) AS constant,
            min(low) AS lowest, max(high) AS highest
        FROM
        (
            SELECT measure_type_code, detector_code, place, count() AS days, quantileExact(0.5)(average) AS level,
                quantileExact(0.5)(count) AS usual_count, countIf(minimum = maximum) AS same, min(minimum) AS low, max(maximum) AS high
            FROM hours GROUP BY measure_type_code, detector_code, place
        )
        GROUP BY measure_type_code, detector_code
    )
SELECT {{q .Instance}}, measure_type_code, {{q .Day}}, detector_code, days, per_hour, levels, constant, lowest, highest, noise, lag
FROM
(
    SELECT measure_type_code, detector_code, false AS old, any(days) AS days, any(per_hour) AS per_hour, any(levels) AS levels,
        any(constant) AS constant, any(lowest) AS lowest, any(highest) AS highest,
        if(count() < 5, 9, quantileExact(0.8)(deviation)) AS noise, any(late.lag) AS lag
    FROM
    (
        SELECT measure_type_code, detector_code, any(l.days) AS days, any(l.per_hour) AS per_hour, any(l.levels) AS levels,
            any(l.constant) AS constant, any(l.lowest) AS lowest, any(l.highest) AS highest,
            abs(log(sumIf(average * count, levels[place + 1] > 0) / sumIf(l.levels[place + 1] * count, l.levels[place + 1] > 0))) AS deviation
        FROM hours JOIN learned AS l USING (measure_type_code, detector_code)
        GROUP BY measure_type_code, detector_code, toDate(hour)
    ) AS days
    LEFT JOIN
    (
        SELECT measure_type_code, detector_code, quantileExact(0.5)(greatest(0, dateDiff('second', timestamp_from, received_at))) AS lag
        FROM {{.ByTime}} FINAL
        WHERE product_instance = {{q .Instance}} AND bucket >= {{.To}} - INTERVAL 12 HOUR AND bucket < {{.To}} - INTERVAL 11 HOUR
        GROUP BY measure_type_code, detector_code
    ) AS late USING (measure_type_code, detector_code)
    GROUP BY measure_type_code, detector_code
    UNION ALL
    SELECT measure_type_code, detector_code, true AS old, days, per_hour, levels, constant, lowest, highest, noise, lag
    FROM {{.Usual}} FINAL
    WHERE product_instance = {{q .Instance}}
        AND day = (SELECT max(day) FROM {{.Usual}} WHERE product_instance = {{q .Instance}} AND day < {{q .Day}})
        AND (measure_type_code, detector_code) IN (
            SELECT measure_type_code, detector_code FROM {{.Sick}} WHERE product_instance = {{q .Instance}} AND bucket >= {{.From}} AND bucket < {{.To}})
)
ORDER BY least(days, 5) DESC, old
LIMIT 1 BY measure_type_code, detector_code
