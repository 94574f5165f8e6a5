"""What a command's work is told of signals."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from scheduler.cancellation import run_command


def test_sigterm_cancels_the_work_and_a_second_one_does_not_disturb_its_end() -> None:
    done: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            done.append("ended what it had started")

    with pytest.raises(SystemExit) as ended:
        run_command(work())
    assert ended.value.code == 143
    assert done == ["ended what it had started"]
    assert signal.getsignal(signal.SIGTERM) is before
