"""A typed asyncio client for gateways: place, create, confirm, and never leave a promise behind.

    async with SchedulerClient("http://127.0.0.1:8090", api_key=key) as scheduler:
        sandbox_id = await scheduler.create(hint, start_on)       # tries another node when one refuses

        async with scheduler.place(hint) as placement:            # or step by step
            sandbox_id = await start_on(placement.node)
            await placement.confirm(sandbox_id)                   # leaving unconfirmed cancels

Errors are those of `scheduler.errors`, rebuilt from the answers.
"""

from scheduler.client.client import SchedulerClient
from scheduler.client.placement import NodeRefused, Placement

__all__ = ["NodeRefused", "Placement", "SchedulerClient"]
