"""The domain's vocabulary: nodes, sandboxes, reservations, placements, settings.

Frozen values without side effects. Nothing here imports another package of the project, so every layer may use it.
"""
