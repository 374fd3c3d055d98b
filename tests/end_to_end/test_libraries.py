"""The tests that need packages apart, in processes of their own that alone see them.

With diffusers and pillow, transformers imports and offers more; all other tests go without. s3fs
and moto bring other versions of what the tests use. AUDITOR_LIBRARIES and AUDITOR_STORES name the
folders of these packages; the Makefile sets them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import each_night

TESTS = Path(__file__).parents[1]
LIBRARIES, STORES = "AUDITOR_LIBRARIES", "AUDITOR_STORES"
FILES = {
    "unit/audit/test_diffusers_components.py": LIBRARIES,
    "laws/test_law_9_diffusers.py": LIBRARIES,
    "laws/test_law_9_generated_components.py": LIBRARIES,
    "laws/test_law_9_timm.py": LIBRARIES,
    "unit/oracle/test_inventory.py": LIBRARIES,
    "unit/downloader/test_s3.py": STORES,
}


@each_night
@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize(("file", "variable"), FILES.items())
def test_what_needs_packages_apart_passes_with_them(file, variable):
    packages = Path(os.environ.get(variable) or "none")
    if not packages.is_dir():
        pytest.skip(f"make test installs the packages of {variable}")
    ignored = ("-W", "ignore::DeprecationWarning") if variable == STORES else ()  # of botocore
    done = subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, TESTS / file],
        env={**os.environ, "PYTHONPATH": str(packages)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
