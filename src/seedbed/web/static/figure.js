// One figure: drawn when visible, with series to hide, a step cursor, its numbers as a table, downloads, and the command
// that draws it.

import { drawChart, el, heightOf, LINE_TOOLTIP, notify, number, replaceRows, view } from "/static/page.js";
import { rowsOf, withRows } from "/static/rows.js";
import { csvButton, tableOf } from "/static/tables.js";

const MAX_SERIES = 30;
const LARGE_ROWS = 250_000; // characters of CSV from which a chart is drawn without its hover points
const MIN_REFRESH_MS = 3000; // between two full loads of a figure whose set of lines changes
const MAX_TABLE_ROWS = 300;
const DRAWING_COLUMNS = /^(line|axis|height|h\d+)$/; // of a dataset, which say where something is drawn and not what
const isHover = (layer) => layer.mark?.style === "hover";
const watcher = new IntersectionObserver((entries) => {
  for (const one of entries) one.target.figure.setVisible(one.isIntersecting);
}, { rootMargin: "300px" });

/** The lines of a line chart grouped by colour and dash: label → line numbers. */
function seriesOf(spec) {
  const found = new Map();
  if (!spec?.datasets?.lines) return found;
  const [head, ...rows] = rowsOf(spec.datasets.lines);
  const [line, colour, dash] = ["line", "colour", "dash"].map((column) => head.indexOf(column));
  const dashes = new Set(rows.map((row) => row[dash]));
  for (const row of rows) {
    const key = [row[colour], dashes.size > 1 ? row[dash] : ""].filter(Boolean).join(" · ") || "all";
    found.set(key, [...(found.get(key) ?? []), row[line]]);
  }
  return found;
}

/** The hidden lines of a chart. */
function hiddenLines(series) {
  const hidden = new Set(view.all("hide"));
  return new Set([...series].filter(([key]) => hidden.has(key)).flatMap(([, numbers]) => numbers).map(Number));
}

/**
 * A large chart without its invisible hover points, which are half of its marks. Its lines then carry the tooltip and
 * the zoom instead.
 */
function withoutHoverPoints(spec) {
  if ((spec.datasets?.rows?.length ?? 0) < LARGE_ROWS || !spec.concat) return spec;
  const simplify = (panel) => {
    const [hover, rest] = [panel.layer?.find(isHover), panel.layer?.filter((layer) => !isHover(layer))];
    const line = rest?.find((layer) => layer.mark?.type === "line");
    if (!hover || !line) return panel;
    const labelled = { ...line, name: hover.name, encoding: { ...line.encoding, tooltip: { value: LINE_TOOLTIP } } };
    return { ...panel, layer: rest.map((layer) => (layer === line ? labelled : layer)) };
  };
  return { ...spec, concat: spec.concat.map(simplify) };
}

/** The spec with axis domains extended to all its rows; panels that shared a domain still do. */
function extendDomains(spec) {
  const read = withRows(spec);
  const panelOf = new Map(read.datasets.lines.map(({ line, panel }) => [line, panel]));
  const ends = new Map(); // previous domain → [min, max]
  const keyOf = (channel, encoding) => `${channel} ${JSON.stringify(encoding.scale.domain)}`;
  const hasEnds = (encoding) => encoding?.type === "quantitative" && Array.isArray(encoding.scale?.domain) && encoding.scale.domain.length === 2;
  const drawn = spec.concat.map((panel) => panel.layer.find((layer) => hasEnds(layer.encoding?.x) && hasEnds(layer.encoding?.y))?.encoding);
  for (const row of read.datasets.rows) {
    const encoding = drawn[panelOf.get(row.line)];
    if (!encoding) continue;
    for (const [channel, values] of [["x", [row.x]], ["y", [row.y, row.low, row.high]]]) {
      const key = keyOf(channel, encoding[channel]);
      const [low, high] = ends.get(key) ?? encoding[channel].scale.domain;
      const known = values.filter((value) => value !== null);
      ends.set(key, [Math.min(low, ...known), Math.max(high, ...known)]);
    }
  }
  const moved = (encoding) => Object.fromEntries(Object.entries(encoding).map(([channel, one]) => {
    const domain = (channel === "x" || channel === "y") && hasEnds(one) && ends.get(keyOf(channel, one));
    return [channel, domain ? { ...one, scale: { ...one.scale, domain } } : one];
  }));
  return { ...spec, concat: spec.concat.map((panel) => ({ ...panel, layer: panel.layer.map((layer) => ({ ...layer, encoding: moved(layer.encoding ?? {}) })) })) };
}

/** Exponential moving averages of the rows of each line, corrected for their start; a weight of 0 changes nothing. */
function smoothed(rows, weight) {
  if (!weight) return rows;
  const state = new Map();
  const next = (key, value) => {
    if (value === null || value === undefined) return value;
    const [mean, n] = state.get(key) ?? [0, 0];
    const now = [weight * mean + (1 - weight) * value, n + 1];
    state.set(key, now);
    return now[0] / (1 - weight ** now[1]);
  };
  return rows.map((row) => ({ ...row, ...Object.fromEntries(["y", "low", "high"].map((name) => [name, next(`${row.line} ${name}`, row[name])])) }));
}

/** The rows of a spec without lines: the largest of its datasets, as a table. */
function plainTable(spec) {
  const found = [];
  const collect = (part) => {
    if (part === null || typeof part !== "object") return;
    if (Array.isArray(part.values) && typeof part.values[0] === "object") found.push(part.values);
    for (const inner of Object.values(part)) collect(inner);
  };
  collect(spec);
  found.push(...Object.values(spec.datasets ?? {}).filter(Array.isArray));
  const rows = found.sort((one, other) => other.length - one.length)[0] ?? [];
  const columns = Object.keys(rows[0] ?? {}).filter((name) => !DRAWING_COLUMNS.test(name));
  const cells = rows.map((row) => columns.map((name) => (typeof row[name] === "object" && row[name] !== null ? JSON.stringify(row[name]) : row[name] ?? "")));
  return [columns, ...new Map(cells.map((row) => [JSON.stringify(row), row])).values()];
}

/** The points of a line chart as rows; if `brief`, one row for each line. */
function lineTable(spec, rows, brief) {
  const titles = spec.concat.map((panel, at) => panel.layer?.map((layer) => layer.encoding?.y?.title).find(Boolean) ?? `panel ${at + 1}`);
  const lines = new Map(spec.datasets.lines.map((line) => [line.line, line]));
  const nameOf = (line) => [line.name, titles[line.panel] ?? "", line.n];
  if (!brief) return [["line", "value of", "n", "x", "y", "low", "high"], ...rows.map((row) => [...nameOf(lines.get(row.line)), row.x ?? "", row.y ?? "", row.low ?? "", row.high ?? ""])];
  const points = new Map();
  for (const row of rows) if (row.y !== null) points.set(row.line, [...(points.get(row.line) ?? []), row]);
  return [["line", "value of", "n", "first", "smallest", "largest", "last", "last x"], ...[...points].map(([line, some]) => {
    const values = some.map((row) => row.y);
    return [...nameOf(lines.get(line)), values[0], Math.min(...values), Math.max(...values), values.at(-1), some.at(-1).x].map((one) => (typeof one === "number" ? number(one) : one));
  })];
}

/** The numbers of a chart as a table for those who cannot see it: a row for each line, or the rows that it draws. */
export function numbersOf(given) {
  const spec = withRows(given);
  const isLines = Array.isArray(spec.datasets?.lines) && spec.concat;
  const [columns, ...rows] = isLines ? lineTable(spec, spec.datasets.rows, true) : plainTable(spec);
  const shown = rows.slice(0, MAX_TABLE_ROWS).map((row) => row.map((one) => (typeof one === "number" ? number(one) : one)));
  return tableOf({ columns, rows: shown, labels: isLines ? 2 : 1, notes: rows.length > shown.length ? [`The first ${shown.length} of ${number(rows.length)} rows.`] : [] });
}

export class Figure {
  /** `ask(number)` requests it, `fileOf(ending)` is the address of a picture. */
  constructor(number_, title, ask, fileOf) {
    Object.assign(this, { number: number_, ask, fileOf, visible: false, fresh: false, shown: null });
    this.chart = el("div", { class: "chart waiting", role: "img", "aria-label": title, style: { minHeight: "320px" } }, "…");
    this.cursors = el("div", { class: "cursors", "aria-hidden": "true" });
    this.place = el("div", { class: "chart-frame", role: "group", tabindex: 0, "aria-label": `figure ${number_}` }, this.chart, this.cursors);
    this.series = el("div", { class: "series noprint", role: "group", "aria-label": `series of figure ${number_}` });
    this.caption = el("span", { dir: "auto" });
    this.notes = el("span", { dir: "auto" });
    this.command = el("code");
    this.files = el("span", { class: "noprint downloads" });
    this.numbers = el("details", { class: "noprint" }, el("summary", {}, `The numbers of figure ${number_}`));
    this.waiting = el("div", { class: "noprint" });
    this.element = el("figure", { id: `figure-${number_}` }, this.place, this.waiting, this.series,
      el("figcaption", {}, el("b", {}, `Figure ${number_}. `), this.caption, " ", this.notes, " ", this.files, this.numbers,
        el("details", { class: "noprint" }, el("summary", {}, "How to reproduce it"), el("pre", { tabindex: 0 }, this.command))));
    this.element.figure = this;
    this.numbers.addEventListener("toggle", () => this.showNumbers());
    this.place.addEventListener("pointermove", (event) => this.moveCursor(event));
    this.place.addEventListener("pointerleave", () => this.cursors.replaceChildren());
    watcher.observe(this.element);
  }

  remove() { watcher.unobserve(this.element); this.element.remove(); }

  /** Marks the loaded figure as outdated. */
  invalidate() { this.fresh = false; }

  setVisible(visible) {
    this.visible = visible;
    document.dispatchEvent(new CustomEvent("figureseen"));
    if (visible && !this.fresh) this.read();
  }

  /** Loads it again now if visible, else when it becomes visible. */
  refresh() {
    this.fresh = false;
    return this.visible ? this.read() : null;
  }

  /** Loads and draws it, optionally from a request that was already sent. */
  async read(response = this.ask(this.number)) {
    this.fresh = true;
    this.readAt = Date.now();
    this.chart.classList.add("stale"); // the old chart stands, and looks it
    const found = await response.catch((error) => { this.fresh = false; notify(error.message, "error"); return null; });
    if (found) await this.show(found);
    this.chart.classList.remove("stale");
  }

  /** Replaces the rows of the same lines; if the set of lines changed, loads the whole figure again. */
  async updateRows({ rows, lines }) {
    const spec = this.shown?.spec;
    if (this.drawing || spec?.datasets?.rows === rows) return;
    if (spec?.datasets?.lines !== lines) {
      if (this.shown && Date.now() - this.readAt > MIN_REFRESH_MS) await this.refresh();
      return;
    }
    this.shown = { ...this.shown, spec: extendDomains({ ...spec, datasets: { ...spec.datasets, rows } }) };
    await this.draw();
  }

  async show(found) {
    this.shown = found;
    this.caption.textContent = `${found.title}${found.report ? ` (report ${found.report})` : ""}.`;
    this.notes.textContent = found.notes.join(" ");
    this.command.textContent = found.command;
    this.chart.setAttribute("aria-label", `${found.title}. ${found.notes.join(" ")}`);
    this.showFiles();
    await this.draw();
    this.showNumbers();
  }

  /** Links to pictures of what is on the screen, whose addresses are made when they are followed. */
  showFiles() {
    const link = (ending) => el("a", { href: this.fileOf(ending), download: "", onclick: (event) => { event.target.href = this.fileOf(ending); } }, ending.toUpperCase());
    this.files.replaceChildren(...(this.shown.spec ? [...(this.fileOf ? ["svg", "pdf", "png"].map(link) : []), csvButton(this.shown.title, () => this.table(false))] : []).flatMap((one) => [one, " "]));
  }

  async draw() {
    if (!this.shown.spec) {
      this.chart.replaceChildren(el("p", { class: "faint" }, this.shown.notes[0] ?? this.shown.title));
      this.chart.classList.add("nothing");
      return;
    }
    this.chart.classList.remove("waiting", "nothing");
    this.lines = seriesOf(this.shown.spec);
    this.spec = withRows(withoutHoverPoints(this.shown.spec));
    this.showSeries();
    if (!this.chart.classList.contains("drawn")) this.chart.style.minHeight = `${heightOf(this.spec)}px`;
    this.drawing = true;
    this.vega = await drawChart(this.chart, () => ({ ...this.spec, datasets: { ...this.spec.datasets, ...this.rows() } }));
    this.drawing = false;
  }

  /** The rows of visible lines, smoothed; axes and colours do not depend on them, so hiding moves nothing. */
  rows() {
    if (!this.spec.datasets?.rows || !this.lines.size) return {};
    const hidden = hiddenLines(this.lines);
    const rows = hidden.size ? this.spec.datasets.rows.filter((row) => !hidden.has(row.line)) : this.spec.datasets.rows;
    return { rows: smoothed(rows, Number(view.get("smooth")) || 0) };
  }

  /** Redraws after series were hidden or shown, or the smoothing was changed. */
  async redraw() {
    this.showSeries();
    if (!this.lines?.size || !this.vega) return;
    await replaceRows(this.vega, this.spec, this.rows().rows);
    this.showNumbers();
  }

  showSeries() {
    this.series.hidden = this.lines.size < 2 || this.lines.size > MAX_SERIES;
    const keys = [...this.lines.keys()];
    const hidden = new Set(view.all("hide"));
    if (this.series.dataset.keys === JSON.stringify([keys, [...hidden]])) return;
    this.series.dataset.keys = JSON.stringify([keys, [...hidden]]);
    this.series.replaceChildren(...keys.map((key) => el("button", {
      type: "button", "aria-pressed": String(!hidden.has(key)), title: "hide or show", onclick: () => this.toggle(key),
    }, el("bdi", {}, key))));
  }

  toggle(key) {
    const hidden = new Set(view.all("hide"));
    if (!hidden.delete(key)) hidden.add(key);
    view.set({ hide: [...hidden] });
    for (const element of document.querySelectorAll("figure")) if (element.figure?.shown?.spec) element.figure.redraw();
  }

  // ---- its numbers ----

  /** The points on the screen as rows; if `brief`, one row for each line. */
  table(brief) {
    return this.lines?.size ? lineTable(this.spec, this.rows().rows, brief) : plainTable(this.spec);
  }

  showNumbers() {
    this.numbers.hidden = !this.shown?.spec;
    if (!this.numbers.open || !this.shown?.spec) return;
    const [columns, ...rows] = this.table(true);
    const notes = rows.length > MAX_TABLE_ROWS ? [`The first ${MAX_TABLE_ROWS} of ${number(rows.length)} rows; CSV has every point.`] : [];
    this.numbers.replaceChildren(this.numbers.firstElementChild, tableOf({ columns, rows: rows.slice(0, MAX_TABLE_ROWS), labels: this.lines?.size ? 2 : 1, notes }));
  }

  // ---- the step under the pointer, in every panel ----

  moveCursor(event) {
    const canvas = this.chart.querySelector("canvas");
    if (!canvas || !this.vega || !this.lines?.size || !this.chart.classList.contains("drawn")) return;
    const [box, frame] = [canvas.getBoundingClientRect(), this.place.getBoundingClientRect()];
    const panels = panelsOf(this.vega);
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const under = panels.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + one.height);
    const inverted = under?.scale?.invert?.(x - under.x);
    if (typeof inverted !== "number") { this.cursors.replaceChildren(); return; }
    const value = Math.max(0, inverted); // the axis begins a few pixels before step 0
    const step = value < 10 ? Number(value.toPrecision(3)) : Math.round(value);
    this.cursors.replaceChildren(...panels.filter((one) => one.scale?.invert).map((one) => el("div", {
      class: "cursor", style: { left: `${box.left - frame.left + one.x + one.scale(value)}px`, top: `${box.top - frame.top + one.y}px`, height: `${one.height}px` },
    }, el("span", {}, number(step)))));
  }
}

/** The panels of a drawn chart: where they are on its canvas, and their x scales. */
function panelsOf(vega) {
  const [left, top] = vega.origin();
  const found = [];
  const visit = (group, x, y) => {
    for (const mark of group.items ?? []) {
      if (mark.marktype !== "group") continue;
      for (const item of mark.items) {
        const [, panel] = mark.name?.match(/^(concat_\d+)_group$/) ?? [];
        if (panel) found.push({ x: x + item.x, y: y + item.y, width: item.width, height: item.height, scale: scaleOf(vega, `${panel}_x`) });
        else visit(item, x + (item.x ?? 0), y + (item.y ?? 0));
      }
    }
  };
  const padding = vega.padding();
  visit(vega.scenegraph().root.items[0], left + (padding.left ?? padding), top + (padding.top ?? padding));
  return found;
}

function scaleOf(vega, name) {
  try { return vega.scale(name); } catch { return null; }
}
