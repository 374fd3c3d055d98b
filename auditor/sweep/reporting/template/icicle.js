// The modules of a model as an icicle: a row a level, as wide as their parameters, stored or
// expected, whichever are more, so that what is missing has room. Arrows walk, Enter goes in,
// Escape goes out. What is amiss is never narrower than a few pixels. The colour is the kind, a
// pattern over it the status: classes of palette.css, as on the page of one model.

const QUIET = new Set(["equal", "buffer", "quantization-data", "tied", "unchecked"]);
const ALARMING = new Set(["missing", "mismatched", "unexpected", "duplicate", "unreadable"]);
const PATTERNED = new Set([...ALARMING, "unused", "newly-initialized"]);
const LEVEL = 28; // pixels
const LEAST = 5;
const LETTER = 6.6;

const svg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// A node of page.py's tree, with its place: figures are those of all modules that it stands for.
function grown([name, alike, tensors, stored, expected, status, kind, children], above, times) {
  const path = above === null ? name : above.path ? `${above.path}.${name}` : name;
  const node = { name: name || "(whole model)", path, alike, above, status, times: times * alike,
    kind: WORDS.kinds[kind] };
  const all = (figure) => (figure === null ? null : figure * node.times);
  Object.assign(node, { tensors: all(tensors), stored: all(stored), expected: all(expected) });
  node.size = Math.max(node.stored ?? 0, node.expected ?? 0);
  node.below = children.map((child) => grown(child, node, node.times));
  node.alarms = ALARMING.has(status) || node.below.some((child) => child.alarms);
  node.look = status === "differs" && !node.alarms ? "equal" : status;
  node.amiss = !QUIET.has(status) || node.below.some((child) => child.amiss);
  return node;
}

function widths(nodes, room) {
  const whole = nodes.reduce((sum, node) => sum + node.size, 0);
  const least = nodes.map((node) => (node.amiss ? Math.min(LEAST, room / nodes.length) : 0));
  const spare = room - least.reduce((sum, width) => sum + width, 0);
  return nodes.map((node, at) => least[at] + (whole ? (spare * node.size) / whole : 0));
}

function swatch(kind, status, place = { width: "100%", height: "100%" }) {
  const drawn = [svg("rect", { ...place, class: `k-${kind} s-${status}` })];
  if (PATTERNED.has(status)) drawn.push(svg("rect", { ...place, class: `over p-${status}` }));
  return drawn;
}

function legend(root) {
  const [kinds, looks] = [new Set(), new Set()];
  const collect = (node) => { kinds.add(node.kind); looks.add(node.look); node.below.forEach(collect); };
  collect(root);
  const part = (kind, status, text) => make("span", {},
    svg("svg", { class: "icicle", "aria-hidden": "true" }, ...swatch(kind, status)), text);
  const plain = [...looks].filter((status) => QUIET.has(status)).sort();
  return make("div", { class: "legend" },
    ...WORDS.kinds.filter((kind) => kinds.has(kind)).map((kind) =>
      part(kind, "equal", kind === "several" ? "several kinds" : kind.replace("-", " "))),
    ...plain.length ? [part("several", "equal", `no pattern: ${plain.join(", ")}`)] : [],
    ...[...looks].filter((status) => !QUIET.has(status)).sort().map((status) =>
      part("several", status, status)));
}

function told(node) {
  const names = node.times > 1 ? `, ${count(node.times)} modules` : "";
  const off = node.stored === null || node.expected === null ? null : node.stored - node.expected;
  const parts = [`${count(node.tensors)} tensors`];
  if (node.stored !== null) parts.push(`${count(node.stored)} stored`);
  if (node.expected !== null) parts.push(`${count(node.expected)} expected`);
  if (off) parts.push(`difference ${signed(off)}`);
  return `${node.path || node.name}${names}: ${node.status}. ${parts.join(", ")}`;
}

function icicle(cell, tree) {
  const root = grown(tree, null, 1);
  const drawing = svg("svg", { class: "icicle", width: "100%", role: "tree",
    "aria-label": "Modules" });
  const line = make("p", { class: "told", "aria-live": "polite" });
  cell.append(drawing, line, legend(root), table(root));
  let top = root;
  let cells = new Map();

  const say = (node) => { line.textContent = told(node); };
  const focus = (node) => {
    if (!cells.has(node)) return;
    cells.forEach((group) => group.setAttribute("tabindex", "-1"));
    cells.get(node).setAttribute("tabindex", "0");
    cells.get(node).focus({ preventScroll: true });
  };
  const into = (node) => {
    top = node.below.length ? node : top;
    paint();
    focus(node);
  };

  function paint() {
    cells = new Map();
    const room = Math.max(200, cell.clientWidth - 48);
    drawing.replaceChildren();
    const chain = [];
    for (let node = top.above; node; node = node.above) chain.unshift(node);
    chain.forEach((node, level) => put(node, 0, room, level));
    const deepest = spread([top], 0, room, chain.length);
    drawing.setAttribute("height", deepest * LEVEL);
    drawing.setAttribute("viewBox", `0 0 ${room} ${deepest * LEVEL}`);
    cells.get(top).setAttribute("tabindex", "0");
  }

  function spread(nodes, left, room, level) {
    let deepest = level;
    widths(nodes, room).forEach((width, at) => {
      if (width >= 1) {
        put(nodes[at], left, width, level);
        deepest = Math.max(deepest, level + 1, spread(nodes[at].below, left, width, level + 1));
      }
      left += width;
    });
    return deepest;
  }

  function put(node, left, width, level) {
    const place = { x: left, y: level * LEVEL, width, height: LEVEL, rx: 3 };
    const group = svg("g", { class: "cell", role: "treeitem", tabindex: -1, "aria-label": told(node) },
      ...swatch(node.kind, node.look, place));
    const letters = Math.floor((width - 10) / LETTER);
    if (letters > 2) {
      const name = node.name.length > letters ? `${node.name.slice(0, letters - 1)}\u2026` : node.name;
      const label = svg("text", { x: left + 6, y: level * LEVEL + LEVEL / 2 + 4 });
      label.textContent = name;
      group.append(label);
    }
    group.addEventListener("mouseenter", () => say(node));
    group.addEventListener("focus", () => say(node));
    group.addEventListener("click", () => into(node === top && node.above ? node.above : node));
    group.addEventListener("keydown", (event) => key(event, node));
    cells.set(node, group);
    drawing.append(group);
  }

  function key(event, node) {
    const row = node.above ? node.above.below.filter((one) => cells.has(one)) : [node];
    const at = row.indexOf(node);
    const to = { ArrowLeft: row[at - 1], ArrowRight: row[at + 1], ArrowUp: node.above,
      ArrowDown: node.below.find((one) => cells.has(one)) }[event.key];
    if (to) focus(to);
    else if (event.key === "Enter") into(node);
    else if (event.key === "Escape" && top.above) into(top.above);
    else return;
    event.preventDefault();
  }

  paint();
  say(root);
  let width = cell.clientWidth;
  new ResizeObserver(() => {
    if (cell.clientWidth !== width) { width = cell.clientWidth; paint(); }
  }).observe(cell);
}

// The same as a table, for those who would rather read it.
function table(root) {
  const folded = make("details", {}, make("summary", {}, "Modules as a table"));
  folded.addEventListener("toggle", () => {
    if (folded.children.length > 1) return;
    const rows = [];
    const add = (node) => {
      const figures = [node.times, node.tensors, node.stored, node.expected].map((one) => make("td", {}, count(one)));
      rows.push(make("tr", {}, make("td", {}, make("code", {}, node.path || node.name)), ...figures,
        make("td", { class: "text" }, node.status)));
      node.below.forEach(add);
    };
    add(root);
    const titles = ["module", "modules", "tensors", "stored", "expected", "status"];
    folded.append(make("table", {}, make("thead", {}, make("tr", {}, ...titles.map((name) =>
      make("th", { scope: "col", class: name === "status" ? "text" : null }, name)))), make("tbody", {}, ...rows)));
  });
  return folded;
}
