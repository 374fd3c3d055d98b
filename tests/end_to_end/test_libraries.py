"""The tests that need diffusers and timm, in a process of their own that alone sees them.

With diffusers and pillow, transformers imports and offers more; all other tests go without.
AUDITOR_LIBRARIES names the folder of these libraries; the Makefile sets it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import each_night

TESTS = Path(__file__).parents[1]
FILES = (
    "unit/audit/test_diffusers_components.py",
    "laws/test_law_9_diffusers.py",
    "laws/test_law_9_generated_components.py",
    "laws/test_law_9_timm.py",
    "unit/oracle/test_inventory.py",
)
LIBRARIES = Path(os.environ.get("AUDITOR_LIBRARIES") or "none")


@each_night
@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.skipif(not LIBRARIES.is_dir(), reason="make test installs diffusers and timm")
@pytest.mark.parametrize("file", FILES)
def test_what_diffusers_and_timm_build_is_what_is_expected(file):
    done = subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / file)],
        env={**os.environ, "PYTHONPATH": str(LIBRARIES)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
