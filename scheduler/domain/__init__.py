"""What the scheduler talks about: nodes, sandboxes, reservations, placements.

Frozen values without behaviour that reaches outside. Nothing here imports another
package of the project, so every layer may.
"""
