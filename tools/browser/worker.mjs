// The worker: Python, and the dropped files as a file system that reads only what is asked for.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const FOLDERS = "/folders";
const ready = start();

async function start() {
  const pyodide = await loadPyodide({ indexURL: new URL("pyodide/", import.meta.url).href });
  const response = await fetch(new URL("python.zip", import.meta.url));
  if (!response.ok) throw new Error(`python.zip: ${response.status}`);
  pyodide.unpackArchive(await response.arrayBuffer(), "zip", { extractDir: "/python" });
  pyodide.FS.mkdir(FOLDERS);
  pyodide.runPython(`import sys; sys.path.insert(0, "/python")`);
  return { pyodide, audited: pyodide.pyimport("in_page").audited };
}

// Names that Emscripten's file system cannot hold, because it keeps them as keys of plain objects.
const isImpossible = ({ name }) => name.split("/")[0] in {} || name.split("/").includes("__proto__");

async function audit({ model, endpoint, files }) {
  const { pyodide, audited } = await ready;
  if (files?.some(isImpossible)) throw new Error("a file's name cannot be read in a browser");
  const { FS } = pyodide;
  if (files) FS.mount(FS.filesystems.WORKERFS, { blobs: files }, FOLDERS);
  try {
    const [json, html] = audited(model, endpoint, files ? FOLDERS : "");
    return { json, html };
  } finally {
    FS.chdir("/");
    if (files) FS.unmount(FOLDERS);
  }
}

let turn = Promise.resolve(); // requests are audited one after another

onmessage = ({ data }) => {
  turn = turn.then(() => audit(data)).then(
    (report) => postMessage(report),
    (error) => postMessage({ error: `${error.message ?? error}`.trim().split("\n").at(-1) }),
  );
};
