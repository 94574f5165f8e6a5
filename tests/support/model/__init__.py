"""The scheduler once more, in the plainest Python: what property tests hold the ledger to.

Nothing here is fast, lazy or shared. Totals are summed anew each time they are asked for,
candidates are sorted whole, time passes at once for everything. It is written from
`docs/architecture.md`, not from the scripts, and never ships.
"""

from tests.support.model.facts import ModelGroup, ModelNode, ModelReservation, Totals
from tests.support.model.lifecycle import Conflicting, Done, LifecycleModel
from tests.support.model.model import Model, Refusal, Verdict
from tests.support.model.reporting import Told

__all__ = [
    "Conflicting",
    "Done",
    "LifecycleModel",
    "Model",
    "ModelGroup",
    "ModelNode",
    "ModelReservation",
    "Refusal",
    "Told",
    "Totals",
    "Verdict",
]
