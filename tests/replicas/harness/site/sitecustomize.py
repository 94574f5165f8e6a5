"""Shifts this process's idea of the time of day, before anything else of it runs.

Python imports a module of this name by itself when its folder is on PYTHONPATH. Only wall clocks are shifted:
monotonic ones, which measure how long something takes, run alike everywhere.
"""

import datetime as dt
import os
import time

OFFSET_SECONDS = float(os.environ.get("HARNESS_CLOCK_OFFSET_SECONDS", "0"))
_real_time, _real_time_ns = time.time, time.time_ns
_RealDatetime = dt.datetime


class _ShiftedDatetime(_RealDatetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)


if OFFSET_SECONDS:
    time.time = lambda: _real_time() + OFFSET_SECONDS
    time.time_ns = lambda: _real_time_ns() + int(OFFSET_SECONDS * 1e9)
    dt.datetime = _ShiftedDatetime
