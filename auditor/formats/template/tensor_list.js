// Filters the lists of tensors. A number is found in a range, too: layer.7 in layer.{0-11}.
const inside = (number, group) => group.split(",").some((part) => {
  const [low, high = low] = part.split("-").map(Number);
  return low <= number && number <= high;
});

function finder(word) {
  const numbers = [];
  const plain = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const source = plain.replace(/\d+/g, (digits) => {
    numbers.push(Number(digits));
    return `(?:${digits}|\\{([\\d,-]+)\\})`;
  });
  const pattern = new RegExp(source, "gi");
  return (text) => [...text.matchAll(pattern)].some((found) =>
    found.slice(1).every((group, at) => group === undefined || inside(numbers[at], group)));
}

for (const list of document.querySelectorAll("details.tensors")) {
  const [query, said] = [list.querySelector("input"), list.querySelector("output")];
  const rows = [...list.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" "));
  query.closest("p").hidden = false;
  query.addEventListener("input", () => {
    const finders = query.value.split(/\s+/).filter(Boolean).map(finder);
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !finders.every((found) => found(texts[at]));
      shown += !row.hidden;
    });
    said.textContent = `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows`;
  });
}
