// The table of models: filter, sort, page, and one section a model, made when it is opened.
// Everything that came from a checkpoint reaches the page as the text of a text node.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const WORDS = read("words");
const MODELS = read("models");
const FINDINGS = read("findings");
let trees = null; // the largest block: parsed when the first section is opened

// The places in a row, as page.py fills them.
const [NAME, STATE, REASON, TARGET, TYPE, STORED, EXPECTED, ERRORS, WARNINGS, INFOS, NEW, FIXED,
  MOVES, COMMIT, FOUND, LEFT_OUT, TREE, DETAIL, WHY, PUSHED, AUTHORS] = Array(21).keys();
const TITLES = { new: "new findings", open: "known findings", unaudited: "not audited" };
const PAGE = 100;

const exact = new Intl.NumberFormat("en-US");
const brief = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });
const count = (number) => (number === null || number === undefined ? "" : exact.format(number));
const signed = (number) => (number === null ? "" : (number > 0 ? "+" : "") + exact.format(number));

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const state = (row) => WORDS.states[row[STATE]];
const title = (name) => TITLES[name] ?? name;
const difference = (row) =>
  row[STORED] === null || row[EXPECTED] === null ? null : row[STORED] - row[EXPECTED];
const causes = (row) => row[WHY].map(([cause]) => cause);
const kinds = (row) => [...causes(row), ...row[FOUND].map(([place]) => FINDINGS[place][0])];

// --- the columns ---------------------------------------------------------------------------

const COLUMNS = [
  { label: "Model", of: (row) => row[NAME], text: true },
  { label: "State", of: (row) => row[STATE], show: (row) => title(state(row)), text: true },
  { label: "Cause", of: (row) => causes(row).join(", "), text: true },
  { label: "Fix", of: (row) => row[WHY].map((why) => why[4]).join("; "), text: true },
  { label: "Errors", of: (row) => row[ERRORS] },
  { label: "Warnings", of: (row) => row[WARNINGS] },
  { label: "New", of: (row) => row[NEW] },
  { label: "Fixed", of: (row) => row[FIXED] },
  { label: "Parameters", of: (row) => row[STORED], show: (row) => brief.format(row[STORED]) },
  { label: "Difference", of: difference, show: (row) => signed(difference(row)) },
  { label: "Class", of: (row) => row[TARGET], text: true },
];
const view = { column: 1, descending: false, query: "", states: new Set(), kind: "", page: 0 };
const texts = MODELS.map((row) =>
  [row[NAME], row[TARGET], row[TYPE], row[REASON], row[COMMIT], row[AUTHORS], ...kinds(row)].join(" ").toLowerCase());
const collator = new Intl.Collator("en", { numeric: true });

function wanted() {
  const words = view.query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  MODELS.forEach((row, at) => {
    if (view.states.size && !view.states.has(row[STATE])) return;
    if (view.kind && !kinds(row).includes(view.kind)) return;
    if (words.every((word) => texts[at].includes(word))) found.push(row);
  });
  const { of, text } = COLUMNS[view.column];
  const way = view.descending ? -1 : 1;
  const empty = (value) => value === null || value === "";
  return found.sort((a, b) => {
    const [one, other] = [of(a), of(b)];
    if (empty(one) || empty(other)) return empty(one) - empty(other);
    if (one === other) return collator.compare(a[NAME], b[NAME]);
    return way * (text && typeof one === "string" ? collator.compare(one, other) : one - other);
  });
}

// --- the table -----------------------------------------------------------------------------

const head = document.querySelector("#table thead");
const body = document.querySelector("#table tbody");
let shown = [];

function draw() {
  shown = wanted();
  view.page = Math.max(0, Math.min(view.page, Math.ceil(shown.length / PAGE) - 1));
  const first = view.page * PAGE;
  const rows = shown.slice(first, first + PAGE);
  body.replaceChildren(...rows.map(line));
  if (!rows.length) {
    body.append(make("tr", { class: "empty" },
      make("td", { colspan: COLUMNS.length }, "No model is like this.")));
  }
  const last = count(first + rows.length);
  document.getElementById("count").textContent =
    rows.length ? `${count(first + 1)}\u2013${last} of ${count(shown.length)}` : "0 models";
  document.getElementById("previous").disabled = !view.page;
  document.getElementById("next").disabled = first + PAGE >= shown.length;
  remember();
  [...head.rows[0].cells].forEach((cell, at) => {
    if (at !== view.column) cell.removeAttribute("aria-sort");
    else cell.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
  });
}

function line(row) {
  const cells = COLUMNS.map(({ label, of, show, text }) => {
    const value = of(row);
    const said = value === null ? "" : show ? show(row) : String(text ? value : count(value));
    const kind = text ? "text" : value === 0 ? "zero" : label.toLowerCase();
    if (label === "Model") {
      const opener = make("button", { type: "button", "aria-expanded": "false" }, make("bdi", {}, said));
      return make("td", { class: "name" }, opener);
    }
    if (label !== "State") return make("td", { class: kind, title: text ? value : count(value) }, said);
    return make("td", { class: "text state" }, make("span", { class: `dot ${state(row)}` }), said);
  });
  const made = make("tr", { class: "row" }, ...cells);
  made.addEventListener("click", () => toggle(made, row));
  return made;
}

function toggle(made, row) {
  const open = made.classList.toggle("opened");
  made.querySelector("button").setAttribute("aria-expanded", String(open));
  if (!open) {
    made.nextElementSibling.remove();
    return;
  }
  const cell = make("td", { colspan: COLUMNS.length });
  made.after(make("tr", { class: "detail" }, cell));
  section(cell, row);
}

// --- one section a model -------------------------------------------------------------------

function section(cell, row) {
  trees ??= read("trees");
  const [formula, by, tree] = row[TREE] < 0 ? ["", "", null] : trees[row[TREE]];
  const facts = {
    commit: row[COMMIT], pushed: pushed(row), class: row[TARGET], type: row[TYPE], stored: count(row[STORED]),
    expected: count(row[EXPECTED]), difference: signed(difference(row)), "expected by": by,
    formula, reason: row[REASON], detail: row[DETAIL],
  };
  const list = make("dl", { class: "facts" });
  for (const [name, value] of Object.entries(facts)) {
    if (!value) continue;
    const said = name === "commit" || name === "formula" ? make("code", {}, value) : value;
    const link = name === "commit" ? commit(row) : "";
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, said, link)));
  }
  const whole = Object.hasOwn(WORDS.pages, row[NAME])
    ? [make("p", {}, make("a", { href: WORDS.pages[row[NAME]] }, "The whole report of this model"))] : [];
  cell.append(...whole, ...row[WHY].map(why), list);
  if (row[MOVES].length) cell.append(make("ul", { class: "moves" }, ...row[MOVES].map(move)));
  if (tree) icicle(cell, tree);
  const found = make("div", { class: "findings" }, ...row[FOUND].map(finding));
  if (row[LEFT_OUT]) found.append(make("p", {}, `and ${count(row[LEFT_OUT])} more, in findings.csv`));
  if (row[FOUND].length) cell.append(found);
}

function why([cause, severity, change, summary, fix, component]) {
  const word = WORDS.changes[change];
  const badges = word === "still-open" ? [] : [make("span", { class: `badge ${word}` }, word)];
  return make("p", { class: "why" },
    make("span", { class: `sev ${WORDS.severities[severity]}` }, make("strong", {}, cause)), " ",
    make("bdi", {}, component ? `${component}: ${summary}` : summary), ...badges,
    make("br"), make("strong", {}, "Fix "), make("bdi", {}, fix));
}

function move([change, kind, before, after]) {
  if (change === "selected") return make("li", {}, "selected for the first time");
  const said = (value) => (typeof value === "number" ? count(value) : String(value));
  return make("li", {}, `${kind || change}: `, make("code", {}, said(before)), " \u2192 ",
    make("code", {}, said(after)));
}

const when = (time) => time.replace("T", " ").replace(/:[0-9]{2}Z$/, " UTC");
const pushed = (row) => [
  row[AUTHORS] && `by ${row[AUTHORS]}`, row[PUSHED] && `on ${when(row[PUSHED])}`,
].filter(Boolean).join(" ");

// The page of a commit on the Hub names its authors, also if the sweep did not ask for them.
const commit = (row) => make("span", {}, " ", make("a",
  { href: WORDS.hub + [...row[NAME].split("/"), "commit", row[COMMIT]].map(encodeURIComponent).join("/") },
  row[AUTHORS] ? "on the Hub" : "who pushed it"));

function finding([place, change, accepted]) {
  const [kind, severity, names, parameters, patterns, more, reason, file] = FINDINGS[place];
  const word = WORDS.changes[change];
  const level = WORDS.severities[severity];
  const badges = word === "still-open" ? [] : [make("span", { class: `badge ${word}` }, word)];
  if (accepted) badges.push(make("span", { class: "badge" }, `accepted: ${accepted}`));
  const figures = ` ${count(names)} ${names === 1 ? "name" : "names"}, ${count(parameters)} parameters`;
  const listed = patterns.map((pattern) => make("div", {}, make("code", {}, make("bdi", {}, pattern))));
  return make("details", {},
    make("summary", {}, make("span", { class: `sev ${level}` }, make("strong", {}, kind)), figures, ...badges),
    make("p", {}, make("bdi", {}, reason), file ? ` (${file})` : ""), ...listed,
    ...(more ? [make("p", {}, `and ${count(more)} more patterns`)] : []));
}

// --- the address, which holds what is shown ----------------------------------------------------

function remember() {
  const said = new URLSearchParams();
  if (view.query) said.set("q", view.query);
  if (view.kind) said.set("kind", view.kind);
  for (const at of [...view.states].sort()) said.append("state", WORDS.states[at]);
  if (view.column !== 1 || view.descending) {
    said.set("sort", (view.descending ? "-" : "") + COLUMNS[view.column].label);
  }
  if (view.page) said.set("page", view.page + 1);
  if (said.toString() !== location.hash.slice(1)) {
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname + location.search);
  }
}

function recall() {
  const said = new URLSearchParams(location.hash.slice(1));
  const sort = said.get("sort") ?? "";
  const column = COLUMNS.findIndex(({ label }) => label === sort.replace(/^-/, ""));
  Object.assign(view, {
    query: said.get("q") ?? "", kind: said.get("kind") ?? "",
    states: new Set(said.getAll("state").map((name) => WORDS.states.indexOf(name)).filter((at) => at >= 0)),
    column: column < 0 ? 1 : column, descending: sort.startsWith("-"),
    page: Math.max(0, (parseInt(said.get("page"), 10) || 1) - 1),
  });
  query.value = view.query;
  kindSelect.value = view.kind;
  for (const chip of document.querySelectorAll("#states .chip")) {
    chip.setAttribute("aria-pressed", String(view.states.has(Number(chip.dataset.state))));
  }
}

// --- what the reader does ------------------------------------------------------------------

function again(changed) {
  Object.assign(view, { page: 0 }, changed);
  draw();
}

head.append(make("tr", {}, ...COLUMNS.map(({ label, text }, at) => {
  const button = make("button", { type: "button" }, label);
  button.addEventListener("click", () =>
    again({ column: at, descending: view.column === at ? !view.descending : !text }));
  return make("th", { scope: "col", class: text ? "text" : null }, button);
})));

WORDS.states.forEach((name, at) => {
  const models = MODELS.filter((row) => row[STATE] === at).length;
  if (!models) return;
  const chip = make("button", { type: "button", class: "chip", "aria-pressed": "false", "data-state": at },
    make("span", { class: `dot ${name}` }), `${title(name)} ${count(models)}`);
  chip.addEventListener("click", () => {
    if (!view.states.delete(at)) view.states.add(at);
    chip.setAttribute("aria-pressed", String(view.states.has(at)));
    again({});
  });
  document.getElementById("states").append(chip);
});

const kindSelect = document.getElementById("kind");
[...new Set(MODELS.flatMap(kinds))].sort().forEach((kind) =>
  kindSelect.append(make("option", { value: kind }, kind)));
kindSelect.addEventListener("change", () => again({ kind: kindSelect.value }));
const query = document.getElementById("query");
query.addEventListener("input", () => again({ query: query.value }));
document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("previous").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));

function turn(way) {
  view.page += way;
  draw();
  document.getElementById("models-title").scrollIntoView();
}

document.addEventListener("keydown", (event) => {
  const opener = event.target.closest?.(".row button");
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (opener && way) {
    const all = [...body.querySelectorAll(".row button")];
    all[all.indexOf(opener) + way]?.focus();
    event.preventDefault();
  } else if (event.key === "/" && !event.target.closest?.("input, select")) {
    query.focus();
    event.preventDefault();
  }
});

addEventListener("hashchange", () => {
  recall();
  draw();
});
recall();
draw();
