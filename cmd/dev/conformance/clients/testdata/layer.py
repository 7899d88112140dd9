"""Reads the street forecast layer as an integrator's program does, with the code
that protoc makes of the published messages.

    python3 layer.py FOLDER_OF_GENERATED_CODE FILE

Writes a line of JSON for each street.
"""

import json
import sys

sys.path.insert(0, sys.argv[1])
from trafficd.v1 import forecast_pb2  # noqa: E402


def optional(message, *names):
    """Returns the members that are set, of those that the definition has: an older one has fewer."""
    known = message.DESCRIPTOR.fields_by_name
    return {name: getattr(message, name) for name in names if name in known and message.HasField(name)}


def period(p):
    return optional(p, "speed_low", "speed_high", "basis", "closed") | {
        "start": p.start,
        "end": p.end,
        "flow_valid": p.flow_valid,
        "speed_valid": p.speed_valid,
        "speed": p.speed,
        "flow": p.flow,
        "timezone": p.timezone,
    }


with open(sys.argv[2], "rb") as file:
    message = file.read()
layer = forecast_pb2.StreetForecastResponse.FromString(message)
if layer.SerializeToString() != message:
    sys.exit("the message changes if it is decoded and encoded again")
for street in layer.streetForecast:
    print(json.dumps(optional(street, "length", "free_flow_speed") | {
        "street": street.street,
        "fromnode": street.fromnode,
        "openLRcode": street.openLRcode,
        "forecast": [period(p) for p in street.forecast],
    }))
