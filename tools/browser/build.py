"""Build the page: python tools/browser/build.py PACKAGES FOLDER.

PACKAGES holds node_modules/pyodide and wheels: msgspec for Pyodide, jinja2 and markupsafe for any
system, of which compiled modules are left out. FOLDER gets the page.
"""

import shutil
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import auditor
from auditor.formats.as_html import policy_digests

_HERE = Path(__file__).parent
_PAGE = ("page.css", "page.mjs", "worker.mjs")
_PYTHON = ("hub_by_browser.py", "in_page.py")
_PYODIDE = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
# The report's own style and script are allowed by their digests: its frame has the page's policy.
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' {script}; style-src 'self' {style}; "
    "worker-src 'self' blob:; connect-src 'self' https: http://127.0.0.1:* http://localhost:*; "
    "base-uri 'none'; form-action 'none'"
)


def build(packages: Path, folder: Path) -> None:
    """Write the page, Pyodide and one archive of all Python into the folder."""
    (folder / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in _PYODIDE:
        shutil.copy(packages / "node_modules" / "pyodide" / name, folder / "pyodide")
    for name in _PAGE:
        shutil.copy(_HERE / name, folder)
    page = (_HERE / "index.html").read_text(encoding="ascii")
    page = page.replace("POLICY", _POLICY.format(**policy_digests()))
    (folder / "index.html").write_text(page, encoding="ascii")
    package = Path(auditor.__file__).parent
    with ZipFile(folder / "python.zip", "w", ZIP_DEFLATED) as archive:
        for wheel in sorted(packages.glob("*.whl")):
            is_for_pyodide = "pyemscripten" in wheel.name
            with ZipFile(wheel) as content:
                for name in content.namelist():
                    if is_for_pyodide or not name.endswith((".so", ".pyd")):
                        archive.writestr(name, content.read(name))
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(package.parent))
        for name in _PYTHON:
            archive.write(_HERE / name, name)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
