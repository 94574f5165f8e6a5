"""What a fault test observed, for people: printed, and kept for `docs/reliability.md` when a file is named.

`SCHEDULER_TEST_FAULTS_REPORT=FILE make faults` appends one JSON line a fault.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.replicas.harness.judge import Verdict


def observed(fault: str, verdict: Verdict | None = None, **figures: Any) -> None:
    """Figures in seconds, or counts."""
    rounded = {name: round(value, 2) if isinstance(value, float) else value for name, value in figures.items()}
    line = {"fault": fault, **rounded}
    if verdict is not None:
        line |= {"placed": verdict.placed, "lost": len(verdict.lost), "faults": len(verdict.faults)}
    text = json.dumps(line)
    print(f"observed {text}")
    if report := os.environ.get("SCHEDULER_TEST_FAULTS_REPORT"):
        with Path(report).open("a", encoding="utf-8") as lines:
            lines.write(text + "\n")
