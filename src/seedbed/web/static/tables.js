// Tables formatted by the server: label columns first, numbers right-aligned, the best ones bold; and CSV of what is shown.

import { el, notify } from "/static/page.js";

/** A table with its title and notes; a title with `csv` gets a button that saves it. */
export function tableOf({ title, columns, rows, notes, best, labels, csv }) {
  const side = (column) => (column < labels ? "label" : "number");
  const bestCells = new Set((best ?? []).map(([row, column]) => `${row} ${column}`));
  return el("div", {}, el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title || csv || "table" }, el("table", {},
    title && el("caption", { dir: "auto" }, title),
    el("thead", {}, el("tr", {}, columns.map((name, column) => (name ? el("th", { scope: "col", dir: "auto", class: side(column) }, name) : el("td", {}))))),
    el("tbody", {}, rows.map((row, number) => el("tr", {}, row.map((cell, column) =>
      el("td", { dir: "auto", class: `${side(column)}${column < labels ? " wrap" : ""}${bestCells.has(`${number} ${column}`) ? " best" : ""}` }, cell))))))),
    (notes ?? []).map((note) => el("p", { class: "notes", dir: "auto" }, note)),
    csv && el("p", { class: "downloads noprint faint" }, csvButton(csv, () => [columns, ...rows])));
}

/** Rows as CSV: `mean ± std` fills two columns, numbers are plain, text that a spreadsheet would execute is quoted. */
export function csvOf([head, ...rows]) {
  const plain = (text) => String(text).replace(/^(-?\d{1,3}(,\d{3})+)(\.\d+)?$/, (whole) => whole.replaceAll(",", "")).replace("−", "-");
  const spread = head.map((_, column) => rows.some((row) => / ± /.test(row[column])));
  const cells = (row, isHead) => row.flatMap((cell, column) => {
    if (!spread[column]) return [plain(cell)];
    return isHead ? [cell, `${cell} std`] : [...String(cell).split(" ± "), ""].slice(0, 2).map(plain);
  });
  const escape = (cell) => {
    const text = cell === "–" ? "" : /^\s*[=+\-@].*[^\d.e+-]/i.test(cell) ? `'${cell}` : cell;
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [cells(head, true), ...rows.map((row) => cells(row, false))].map((row) => row.map(escape).join(",")).join("\n") + "\n";
}

/** A button that saves rows as they are now. */
export const csvButton = (name, rows) => el("button", { type: "button", class: "plain link", onclick: () => saveFile(`${name}.csv`, csvOf(rows()), "text/csv") }, "CSV");

/** Saves a text or a blob under a name. */
export function saveFile(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href: url, download: name.replace(/[^\p{L}\p{N}.+=_-]+/gu, "-") }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  notify(`saved ${name}`);
}
