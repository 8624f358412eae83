"use strict";
// Tables of the report: a click on a heading sorts, a field above a long table filters. Without scripts they just stand.
const UNITS = {
  ns: 1e-9, "\u00b5s": 1e-6, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
  KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, k: 1e3, M: 1e6, G: 1e9,
};
const MIN_ROWS = 8;

// The number that a cell begins with, in units that compare; null where it begins with none.
function numberOf(text) {
  const found = /^[<>\u2265\u2264\u2248~]?\s*([-+\u2212]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)\s*([A-Za-z\u00b5]*)/.exec(text);
  if (found === null) return null;
  return Number(found[1].replaceAll(",", "").replace("\u2212", "-")) * (UNITS[found[2]] ?? 1);
}

// Cells without a number come last, whichever way the others are sorted.
function compare(one, other, sign) {
  const [a, b] = [numberOf(one), numberOf(other)];
  if (a !== null && b !== null) return sign * (a - b);
  if (a !== null || b !== null) return a !== null ? -1 : 1;
  if (!one || !other) return one ? -1 : other ? 1 : 0;
  return sign * one.localeCompare(other);
}

function sortBy(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const goesUp = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, at) => head.setAttribute("aria-sort", at !== column ? "none" : goesUp ? "ascending" : "descending"));
  const rows = [...table.tBodies[0].rows];
  const textOf = (row) => row.cells[column].textContent.trim();
  rows.sort((one, other) => compare(textOf(one), textOf(other), goesUp ? 1 : -1));
  table.tBodies[0].append(...rows);
}

function addFilter(table) {
  const field = document.createElement("input");
  field.className = "filter";
  field.type = "search";
  field.placeholder = "Rows with these words";
  field.setAttribute("aria-label", "Filter the table below");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.parentElement.before(field);
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.addEventListener("click", () => sortBy(table, column));
    head.addEventListener("keydown", (event) => event.key === "Enter" && sortBy(table, column));
  });
  if (table.tBodies[0].rows.length >= MIN_ROWS) addFilter(table);
}
