// One figure of a study: drawn when visible, with series to hide, downloads, and the command that draws it.

import { drawChart, el, heightOf, notify, view } from "/static/page.js";
import { rowsOf, withRows } from "/static/rows.js";

const MAX_SERIES = 30;
const LARGE_ROWS = 250_000; // characters of CSV from which a chart is drawn without its hover points
const LINE_TOOLTIP = [{ field: "name", type: "nominal", title: "line" }, { field: "n", type: "nominal", title: "n" }];
const MIN_REFRESH_MS = 3000; // between two full loads of a figure whose set of lines changes
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
    const labelled = { ...line, name: hover.name, encoding: { ...line.encoding, tooltip: LINE_TOOLTIP } };
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

export class Figure {
  constructor(number, title, fetch, fileOf) {
    Object.assign(this, { number, fetch, fileOf, visible: false, fresh: false, shown: null });
    this.place = el("div", { class: "chart waiting", role: "img", "aria-label": title, style: { minHeight: "320px" } }, "…");
    this.series = el("div", { class: "series", role: "group", "aria-label": `series of figure ${number}` });
    this.caption = el("span", { dir: "auto" });
    this.notes = el("span", { dir: "auto" });
    this.command = el("code");
    this.files = el("span", { class: "noprint" });
    this.element = el("figure", { id: `figure-${number}` }, this.place, this.series,
      el("figcaption", {}, el("b", {}, `Figure ${number}. `), this.caption, " ", this.notes, " ", this.files,
        el("details", {}, el("summary", {}, "How to reproduce it"), el("pre", {}, this.command))));
    this.element.figure = this;
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
  async read(response = this.fetch(this.number)) {
    this.fresh = true;
    this.readAt = Date.now();
    const found = await response.catch((error) => { this.fresh = false; notify(error.message, "error"); return null; });
    if (found) await this.show(found);
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
    this.place.setAttribute("aria-label", `${found.title}. ${found.notes.join(" ")}`);
    this.files.replaceChildren(...(found.spec && this.fileOf ? ["svg", "pdf", "png"] : []).flatMap((ending) =>
      [el("a", { href: this.fileOf(ending), download: "" }, ending.toUpperCase()), " "]));
    await this.draw();
  }

  async draw() {
    if (!this.shown.spec) {
      this.place.replaceChildren(el("p", { class: "faint" }, this.shown.notes[0] ?? this.shown.title));
      this.place.style.minHeight = "3rem";
      return;
    }
    this.lines = seriesOf(this.shown.spec);
    this.spec = withRows(withoutHoverPoints(this.shown.spec));
    this.showSeries();
    this.place.classList.remove("waiting");
    if (!this.place.classList.contains("drawn")) this.place.style.minHeight = `${heightOf(this.spec)}px`;
    this.drawing = true;
    this.vega = await drawChart(this.place, () => ({ ...this.spec, datasets: { ...this.spec.datasets, ...this.rows() } }));
    this.drawing = false;
  }

  /** The rows of visible lines; axes and colours do not depend on them, so hiding moves nothing. */
  rows() {
    const hidden = hiddenLines(this.lines);
    return hidden.size ? { rows: this.spec.datasets.rows.filter((row) => !hidden.has(row.line)) } : {};
  }

  /** Redraws after series were hidden or shown. */
  async redraw() {
    this.showSeries();
    if (!this.lines?.size || !this.vega) return;
    await this.vega.data("rows", this.rows().rows ?? this.spec.datasets.rows).runAsync();
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
}
