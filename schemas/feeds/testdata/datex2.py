"""Reads measured data of DATEX II as a script of a few lines would, and prints a row per value.

It is an oracle: written from the schemas, with a tree of the whole document, and without any code of
the package.
"""
import sys
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone

meaning_default, period_default, minus_one = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "true"
kinds = {
    "averageVehicleSpeed": ("speed", "speed"),
    "vehicleFlow": ("flow", "vehicleFlowRate"),
    "occupancy": ("occupancy", "percentage"),
}


def local(e):
    return e.tag.rsplit("}", 1)[-1]


def children(e, name):
    return [c for c in e if local(c) == name]


def text(e, *path):
    for name in path:
        found = children(e, name) if e is not None else []
        e = found[0] if found else None
    return None if e is None else (e.text or "").strip()


def parse_time(s):
    return datetime.fromisoformat(s.replace("Z", "+00:00")).astimezone(timezone.utc)


def interval(container, period):
    """container holds a time of version 2 as text, or of version 3 as elements"""
    if container is None:
        return None
    own = (container.text or "").strip()
    start, stop = text(container, "period", "startOfPeriod"), text(container, "period", "endOfPeriod")
    if start and stop:
        return parse_time(start), parse_time(stop)
    at = own or text(container, "timeValue")
    if not at:
        return None
    meaning = {"beginTime": "begin", "endTime": "end"}.get(text(container, "timeMeaning"), meaning_default)
    at = parse_time(at)
    return (at, at + period) if meaning == "begin" else (at - period, at)


out = []
root = ET.parse(sys.stdin.buffer).getroot()
for site in (e for e in root.iter() if local(e) == "siteMeasurements"):
    reference = children(site, "measurementSiteReference")[0].get("id")
    default = (children(site, "measurementTimeDefault") or [None])[0]
    found = []
    for quantity in site:
        if local(quantity) not in ("measuredValue", "physicalQuantity"):
            continue
        index = int(quantity.get("index"))
        fault = any(local(e).endswith("Fault") for e in quantity.iter())
        basics = [e for e in quantity.iter() if local(e) == "basicData"]
        if not basics:
            found.append((index, "unknown", None, "fault", None, -1))
        for basic in basics:
            own = (children(basic, "measurementOrCalculationTime") or [None])[0]
            period = text(basic, "measurementOrCalculationPeriod")
            period = timedelta(seconds=float(period) if period else period_default)
            span = interval(own if own is not None else default, period)
            for e in basic:
                if local(e) not in kinds:
                    continue
                kind, leaf = kinds[local(e)]
                value = float(text(e, leaf))
                inputs = int(e.get("numberOfInputValuesUsed", -1))
                outcome = "measured"
                if fault or text(e, "dataError") in ("true", "1"):
                    outcome = "fault"
                elif kind == "speed" and (inputs == 0 or value == -1 and minus_one):
                    outcome = "no vehicle"
                found.append((index, kind, value, outcome, span, inputs))
    zero = {(i, span) for i, kind, value, outcome, span, _ in found if kind == "flow" and outcome == "measured" and value == 0}
    for index, kind, value, outcome, span, inputs in found:
        if outcome == "measured":
            if kind == "speed" and inputs < 0 and (index, span) in zero:
                outcome = "no vehicle"
            elif value < 0 or span is None:
                outcome = "fault"
        span = "" if span is None else " ".join(t.strftime("%Y-%m-%dT%H:%M:%SZ") for t in span)
        out.append(f"{reference} {index} {kind} {0 if value is None else value:g} {outcome} {span}")
sys.stdout.write("\n".join(out) + "\n")
