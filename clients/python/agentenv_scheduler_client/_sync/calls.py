# Written by generate_sync.py from _async/calls.py; change that one.
"""Asks the scheduler, again until there is an answer or the time is over."""

from __future__ import annotations

from typing import TypeVar

import httpx

from agentenv_scheduler_client._sync.waiting import Waiting
from agentenv_scheduler_client.asking import Attempts, Failure, Patience, Question, Read, outcome, timeout_header
from agentenv_scheduler_client.connection import Connection
from agentenv_scheduler_client.errors import InvalidRequest

T = TypeVar("T")


class Calls:
    """`patience` is how long one call is worth."""

    def __init__(self, http: httpx.Client, connection: Connection, waiting: Waiting, patience: Patience) -> None:
        self._http = http
        self._connection = connection
        self.waiting = waiting
        self.patience = patience

    def patient(self, patience: Patience) -> Calls:
        """A copy of these calls that waits as long as the given patience."""
        return Calls(self._http, self._connection, self.waiting, patience)

    def ask(self, question: Question, read: Read[T]) -> T:
        """What `read` makes of the answer. Raises SchedulerError."""
        attempts = Attempts(self.patience, self.waiting.now)
        while True:
            seconds = attempts.begin()
            result = outcome(self._send(question, seconds), read, seconds)
            if not isinstance(result, Failure):
                return result
            self.waiting.sleep(attempts.failed(result))

    def close(self) -> None:
        self._http.close()

    def _send(self, question: Question, seconds: float) -> httpx.Response | Exception:
        headers = {
            **self._connection.headers(),
            **question.headers,
            "X-Request-Timeout": timeout_header(seconds),
        }
        try:
            request = self._http.build_request(
                question.method,
                question.path,
                params=question.params,
                json=question.body,
                headers=headers,
                timeout=seconds,
            )
        except (TypeError, ValueError) as error:  # half a surrogate pair, NaN, what is no JSON
            raise InvalidRequest(f"it cannot be sent: {error}") from error
        try:
            return self.waiting.within(seconds, lambda: self._http.send(request))
        except (TimeoutError, httpx.HTTPError) as error:
            return error
