// The page: it passes a folder's files or a model's id to the worker, and shows the report.

const at = (id) => document.getElementById(id);

// A worker made from a blob has the page's content security policy; one from a file would have none.
const start = `import ${JSON.stringify(new URL("worker.mjs", location.href).href)};`;
const script = URL.createObjectURL(new Blob([start], { type: "text/javascript" }));
let worker, addresses = [];

function begin() {
  worker?.terminate();
  worker = new Worker(script, { type: "module" });
  worker.onmessage = ({ data }) => show(data);
  worker.onerror = (event) => {
    at("status").textContent = `The audit cannot be started: ${event.message}`;
  };
}

begin();

function audit(request, name) {
  for (const address of addresses) URL.revokeObjectURL(address);
  addresses = [];
  at("report").hidden = at("downloads").hidden = true;
  at("status").textContent = `Auditing ${name} …`;
  worker.postMessage(request);
}

function offer(id, text, type, name) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  addresses.push(address);
  Object.assign(at(id), { href: address, download: name });
}

function show({ json, html, error }) {
  at("status").textContent = error ?? "Done.";
  if (error !== undefined) return begin(); // an error that ends Python would fail all audits after it
  offer("json", json, "application/json", "report.json");
  offer("html", html, "text/html", "report.html");
  at("report").srcdoc = html;
  at("report").hidden = at("downloads").hidden = false;
}

at("hub").onsubmit = (event) => {
  event.preventDefault();
  const model = at("model").value.trim();
  audit({ model, endpoint: at("endpoint").value.replace(/\/+$/, "") }, model);
};

// --- folders -------------------------------------------------------------------------------------

function auditFiles(files) {
  if (!files.length) return;
  const folder = files[0].name.split("/")[0];
  audit({ model: folder, endpoint: at("endpoint").value.replace(/\/+$/, ""), files }, folder);
}

at("folder").onchange = () => {
  auditFiles([...at("folder").files].map((data) => ({ name: data.webkitRelativePath, data })));
};

at("drop").ondragover = (event) => event.preventDefault();
at("drop").ondrop = async (event) => {
  event.preventDefault();
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry());
  if (entries.length !== 1 || !entries[0]?.isDirectory) {
    at("status").textContent = "Drop one folder, which holds the checkpoint.";
    return;
  }
  auditFiles(await filesBelow(entries[0]));
};

async function filesBelow(entry) {
  const name = entry.fullPath.slice(1);
  if (entry.isFile) return [{ name, data: await new Promise((...ends) => entry.file(...ends)) }];
  const reader = entry.createReader(), found = [];
  for (;;) { // a call returns at most a hundred entries
    const entries = await new Promise((...ends) => reader.readEntries(...ends));
    if (!entries.length) return found;
    for (const one of entries) found.push(...await filesBelow(one));
  }
}
