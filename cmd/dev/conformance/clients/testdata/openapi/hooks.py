"""Defines how schemathesis sends the bodies that it generates."""

import gzip
import json

import schemathesis


@schemathesis.serializer("application/json", "application/gzip")
def compressed(ctx, value):
    """Compresses batches (contract 1.1)."""
    text = value if isinstance(value, bytes) else json.dumps(value, default=lambda b: b.decode("latin-1")).encode()
    return gzip.compress(text)


@schemathesis.serializer("text/xml")
def plain(ctx, value):
    """Sends envelopes as text instead of as the content of an element."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
