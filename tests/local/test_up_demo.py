"""`make demo` ends by itself with status 0, having shown what it announces."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_shows_pods_scheduled_over_http_and_exits_well() -> None:
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    for shown in ("giant: 0/3 nodes are available: 3 Insufficient cpu.", "newcomer", "Preempted"):
        assert shown in done.stdout, done.stdout
