-- Out of range: negative, a speed over 250, an occupancy over 100, or more than twice the highest value of the last 28 days.
SELECT detector_code, measure_type_code, hour AS since,
    format('{} from {} to {} in the hour of {} UTC; from {} to {} in the 28 days before', measure_type_code,
        toString(minimum), toString(maximum), formatDateTime(hour, '%F %H:%i'), toString(lowest), toString(highest)) AS rule
FROM {{.Recent 1}}
WHERE minimum < 0
    OR startsWith(measure_type_code, 'speed') AND maximum > 250
    OR startsWith(measure_type_code, 'occupancy') AND maximum > 100
    OR days >= 7 AND highest > 0 AND maximum > 2 * highest + 10
