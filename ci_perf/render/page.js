
"use strict";
const table = document.getElementById("cases"), body = table.tBodies[0];
const words = document.getElementById("words"), verdict = document.getElementById("verdict");
const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
const compare = (a, b) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  return isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b;
};
table.tHead.addEventListener("click", event => {
  const title = event.target.closest("th");
  if (!title) return;
  const down = title.getAttribute("aria-sort") === "ascending", column = title.cellIndex;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  title.setAttribute("aria-sort", down ? "descending" : "ascending");
  const empty = row => value(row, column) === "";
  body.append(...[...body.rows].sort((a, b) => {
    const order = compare(value(a, column), value(b, column));
    return down && !empty(a) && !empty(b) ? -order : order;
  }));
});
function filter() {
  const sought = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(sought.every(word => text.includes(word)) && ["", row.dataset.verdict].includes(verdict.value));
    shown += !row.hidden;
  }
  document.getElementById("count").textContent = `${shown} of ${body.rows.length} shown`;
}
function open() {
  const found = /^#case-\d+$/.test(location.hash) && document.querySelector(location.hash);
  if (found) found.open = true;
}
words.addEventListener("input", filter);
verdict.addEventListener("change", filter);
document.querySelector("form").addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", open);
filter();
open();
