"""What the suite changes in fakeredis changes nothing but how long it takes."""

from __future__ import annotations

import pytest
from fakeredis import FakeRedis
from redis.exceptions import ResponseError

from tests.support.embedded import empty_server


def test_a_global_is_refused_before_the_next_command_and_after_the_script_and_is_gone_then() -> None:
    client = FakeRedis(server=empty_server())
    for script in ("left = 1; redis.call('SET', 'key', 'value')", "redis.call('GET', 'key'); left = 1"):
        with pytest.raises(ResponseError, match="left"):
            client.eval(script, 0)
        assert client.get("key") is None
        assert client.eval("return redis.call('EXISTS', 'key')", 0) == 0
