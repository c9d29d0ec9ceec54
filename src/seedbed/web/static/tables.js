// Tables formatted by the server: label columns first, numbers right-aligned, the best ones bold.

import { el } from "/static/page.js";

/** A table with its title and notes. */
export function tableOf({ title, columns, rows, notes, best, labels }) {
  const side = (column) => (column < labels ? "label" : "number");
  const bestCells = new Set((best ?? []).map(([row, column]) => `${row} ${column}`));
  return el("div", {}, el("div", { class: "scroll" }, el("table", {},
    title && el("caption", { dir: "auto" }, title),
    el("thead", {}, el("tr", {}, columns.map((name, column) => el("th", { scope: "col", dir: "auto", class: side(column) }, name)))),
    el("tbody", {}, rows.map((row, number) => el("tr", {}, row.map((cell, column) =>
      el("td", { dir: "auto", class: `${side(column)}${column < labels ? " wrap" : ""}${bestCells.has(`${number} ${column}`) ? " best" : ""}` }, cell))))))),
    (notes ?? []).map((note) => el("p", { class: "notes", dir: "auto" }, note)));
}
