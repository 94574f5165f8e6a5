"""The HTTP API: JSON by default, MessagePack on request, problems as RFC 9457.

app.py        create_app: routes, edge and documents put together
edge.py       around every request: id, path, load, the last safety net
route.py      how an endpoint's declared parameters are read and its answer written
media.py      bodies and answers as JSON or MessagePack, bounded
problems.py   errors as answers
fields.py     the types of members, with their bounds
answers.py    the shapes of answers, for the OpenAPI document
routes/       one file per noun: request bodies and endpoints
"""

from scheduler.api.http.app import create_app, create_metrics_app
from scheduler.api.http.options import HttpOptions

__all__ = ["HttpOptions", "create_app", "create_metrics_app"]
