"""`kill -9` of `holdfast up` loses no write that was acknowledged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="servers are forked")
def test_two_hundred_crashes_lose_no_write_that_was_acknowledged_over_http(tmp_path: Path) -> None:
    program = Path(__file__).with_name("killing.py")
    run = subprocess.run(
        [sys.executable, program, tmp_path, "200", "1"], capture_output=True, text=True, timeout=1800
    )
    assert run.returncode == 0, run.stderr
    found = re.fullmatch(r"killed=200 revisions=(\d+) under_way=\d+\n", run.stdout)
    assert found is not None, run.stdout
    assert int(found[1]) > 200
