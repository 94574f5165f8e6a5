"""A typed asyncio client for gateways: place, create, confirm, and never give away capacity that may be in use.

    async with SchedulerClient("http://127.0.0.1:8090", api_key=key) as scheduler:
        sandbox_id = await scheduler.create(hint, start_on)       # tries another node when one refuses

        async with scheduler.place(hint) as placement:            # or step by step
            sandbox_id = await start_on(placement.node)           # raises NodeRefused when nothing was created
            await placement.confirm(sandbox_id)                   # asked until the reservation's deadline

Errors are those of `scheduler.errors`, rebuilt from the answers, and two more:

    Exception
    └── NodeRefused                     raised by the caller: this node created nothing, try another
    SchedulerError
    └── OutcomeUnknown  outcome_unknown a sandbox may run, and nobody could be asked; carries node, reservation, sandbox
"""

from scheduler.client.calls import Patience
from scheduler.client.client import SchedulerClient
from scheduler.client.errors import NodeRefused, OutcomeUnknown
from scheduler.client.placement import Placement

__all__ = ["NodeRefused", "OutcomeUnknown", "Patience", "Placement", "SchedulerClient"]
