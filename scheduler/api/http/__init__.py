"""The HTTP API: JSON by default, MessagePack on request, problems as RFC 9457.

app.py           create_app: builds the application
edge.py          around every request: id, path, load limit, unexpected errors
route.py         reads an endpoint's declared parameters and writes its answer
media.py         bodies and answers as JSON or MessagePack, with size limits
problems.py      errors as answers
fields.py        the types of members, with their limits
answers.py       the shapes of answers, for the OpenAPI document
descriptions.py  the descriptions of all members, for the OpenAPI document
routes/          one file per noun: request bodies and endpoints
"""

from scheduler.api.http.app import create_app, create_metrics_app
from scheduler.api.http.options import HttpOptions

__all__ = ["HttpOptions", "create_app", "create_metrics_app"]
