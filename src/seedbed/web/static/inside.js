// Inside: the tokens of a text with their attention, thumbnails of every head, one large map, for any checkpoint.

import { el, find, get, number, post, notify, view } from "/static/page.js";
import { Maps, colourBar, drawLarge, drawSmall, shadeOf } from "/static/maps.js";
import { bar, chooser, percent, roving, short, tokenElement, visible } from "/static/models.js";
import { csvOf, saveFile } from "/static/tables.js";

const text = find("#text"), byWord = find("#by-word"), two = find("#two"), place = find("#sides");
const MAX_CACHED = 12; // responses per side, so that moving the slider back is instant
const MAX_LISTED = 6; // tokens per list of weights
let examples = 0;

/** One run and everything shown of it. */
class Side {
  constructor(prefix, title) {
    this.prefix = prefix;
    this.title = title;
    this.responses = new Map();
    this.maps = null;
    this.layer = Math.max(0, Number(view.get(`${prefix}layer`, 1)) - 1 || 0);
    this.head = Math.max(0, Number(view.get(`${prefix}head`, 1)) - 1 || 0);
    this.chosen = Number(view.get(`${prefix}at`, 0)) - 1;
    if (!(this.chosen >= 0)) this.chosen = null;
  }

  async build() {
    this.model = await chooser(this.prefix, this.title, () => this.changed());
    if (this.model.nothing) return this.model.nothing;
    this.note = el("p", { class: "faint note", "aria-live": "polite" });
    this.tokens = el("div", { class: "tokens", dir: "auto", role: "group", "aria-label": "tokens of the text" });
    this.weights = el("div", { class: "weights", "aria-live": "polite" });
    this.grid = el("div", { class: "heads", role: "group", "aria-label": "layers and heads" });
    this.canvas = el("canvas", { class: "map" });
    this.caption = el("figcaption", {});
    this.scale = colourBar();
    this.files = el("p", { class: "downloads noprint faint" }, "Download ",
      el("button", { type: "button", class: "plain link", onclick: () => this.savePicture() }, "PNG"), " · ",
      el("button", { type: "button", class: "plain link", onclick: () => this.saveWeights() }, "CSV of every head"));
    this.statistics = el("details", { class: "statistics" }, el("summary", {}, "Head statistics on held-out inputs"));
    this.element = el("section", { class: "side", "aria-label": this.title },
      this.model.place, this.note,
      el("div", { class: "halves" },
        el("div", {}, this.tokens, this.weights, this.grid),
        el("figure", { class: "large" }, this.canvas, this.scale, this.caption, this.files)),
      this.statistics);
    this.listen();
    return this.element;
  }

  listen() {
    const at = (event) => event.target.closest(".token");
    this.tokens.addEventListener("pointerover", (event) => at(event) && chooseToken(this, Number(at(event).dataset.at)));
    this.tokens.addEventListener("focusin", (event) => at(event) && chooseToken(this, Number(at(event).dataset.at)));
    roving(this.tokens);
    roving(this.grid, { columns: () => this.maps?.heads ?? 1 });
    this.grid.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.chooseHead(Number(button.dataset.layer), Number(button.dataset.head));
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const found = this.locate?.(event);
      if (found) { chooseToken(this, found[0]); this.point(...found); }
    });
    this.statistics.addEventListener("toggle", () => this.statistics.open && this.fillStatistics());
  }

  start() { return this.model.start(); }

  // ---- requests ----

  async changed() {
    if (this.statistics.open) this.fillStatistics();
    if (!text.value) await this.fillExample();
    await this.load();
  }

  async fillExample() {
    const { about, step } = this.model;
    try {
      text.value = (await get(`/api/models/${about.id}/example?step=${step}&n=${examples}`)).text;
      view.set({ text: short(text.value) });
    } catch (error) { notify(error.message, "error"); }
  }

  async load() {
    const { about, step } = this.model;
    if (!about || !text.value) return;
    const body = { run: about.id, step, text: text.value, by: byWord.checked ? "word" : "token" };
    const key = JSON.stringify(body);
    this.pending?.abort();
    this.pending = new AbortController();
    this.element.setAttribute("aria-busy", "true");
    if (!this.maps) this.note.textContent = "waiting for the model …";
    try {
      const maps = this.responses.get(key) ?? new Maps(await post("/api/attention", body, { signal: this.pending.signal }));
      this.responses.set(key, maps);
      if (this.responses.size > MAX_CACHED) this.responses.delete(this.responses.keys().next().value);
      this.show(maps);
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error.message);
    }
  }

  showError(message) {
    this.maps = null;
    this.element.setAttribute("aria-busy", "false");
    this.element.classList.add("failed");
    this.note.textContent = message;
    this.note.classList.add("error");
  }

  // ---- display ----

  show(maps) {
    const sameText = this.maps && sameTokens(this.maps, maps);
    this.maps = maps;
    this.element.classList.remove("failed");
    this.note.classList.remove("error");
    this.layer = Math.min(this.layer, maps.layers - 1);
    this.head = Math.min(this.head, maps.heads - 1);
    this.note.textContent = noteOf(maps, this.model.about);
    if (!sameText) this.fillTokens();
    this.fillGrid();
    this.draw();
    this.shade();
    this.element.setAttribute("aria-busy", "false");
  }

  fillTokens() {
    const { pieces, labels, padding } = this.maps;
    this.chosen = Math.min(this.chosen ?? labels.length - 1, labels.length - 1);
    const last = padding.indexOf(true) - 1;
    if (padding[this.chosen]) this.chosen = Math.max(0, last);
    this.tokens.replaceChildren(...labels.map((label, at) => {
      const word = byWord.checked && at ? " " : "";
      const made = tokenElement(padding[at] ? "" : pieces[at], label, { "data-at": at, "aria-label": label });
      if (padding[at]) made.classList.add("pad");
      if (at === this.chosen) made.tabIndex = 0;
      return [word, made];
    }).flat());
  }

  fillGrid() {
    const { layers, heads } = this.maps, single = layers * heads === 1;
    this.grid.hidden = single;
    this.grid.style.setProperty("--heads", heads);
    if (single) return;
    const side = heads > 8 ? 48 : heads > 4 ? 64 : 96;
    if (this.buttons.length !== layers * heads) this.grid.replaceChildren(...gridOf(layers, heads));
    for (const button of this.buttons) {
      const layer = Number(button.dataset.layer), head = Number(button.dataset.head);
      button.setAttribute("aria-label", this.maps.name(layer, head));
      button.title = this.maps.name(layer, head);
      drawSmall(button.firstChild, this.maps, layer, head, side);
    }
    this.mark();
  }

  get buttons() { return this.grid.querySelectorAll("button"); }

  mark() {
    for (const button of this.buttons) {
      const here = Number(button.dataset.layer) === this.layer && Number(button.dataset.head) === this.head;
      button.setAttribute("aria-pressed", String(here));
      button.tabIndex = here ? 0 : -1;
    }
  }

  chooseHead(layer, head) {
    this.layer = layer;
    this.head = head;
    view.set({ [`${this.prefix}layer`]: layer + 1, [`${this.prefix}head`]: head + 1 });
    this.mark();
    this.draw();
    this.shade();
  }

  draw() {
    if (!this.maps) return;
    const available = Math.max(200, this.canvas.parentElement.clientWidth);
    this.locate = drawLarge(this.canvas, this.maps, this.layer, this.head, available, this.chosen);
    const name = this.maps.name(this.layer, this.head);
    this.canvas.setAttribute("role", "img");
    const read = this.maps.isAttention ? "rows are queries, columns are sources" : "rows are outputs, columns are inputs";
    this.canvas.setAttribute("aria-label", `${name}: ${read}`);
    this.caption.textContent = `${name}: ${read}; one scale for all heads and the text, whose shades are paler`;
  }

  get fileName() { return `attention of run ${this.model.about.id} step ${this.model.step}`; }

  savePicture() { this.canvas.toBlob((blob) => saveFile(`${this.fileName} ${this.maps.name(this.layer, this.head)}.png`, blob)); }

  saveWeights() {
    const { layers, heads, n, labels } = this.maps, rows = [["layer", "head", "query", "query token", "source", "source token", "weight"]];
    for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) for (let query = 0; query < n; query++) for (let source = 0; source < n; source++) {
      const weight = this.maps.weight(layer, head, query, source);
      if (weight) rows.push([layer + 1, head + 1, query + 1, labels[query], source + 1, labels[source], weight.toFixed(5)]);
    }
    saveFile(`${this.fileName}.csv`, csvOf(rows), "text/csv");
  }

  choose(at) {
    if (!this.maps || at >= this.maps.n || at === this.chosen) return;
    this.chosen = at;
    clearTimeout(this.remembering); // browsers limit how often the address may change
    this.remembering = setTimeout(() => view.set({ [`${this.prefix}at`]: at + 1 }), 300);
    this.draw();
    this.shade();
  }

  point(query, source) {
    const { labels } = this.maps, weight = this.maps.weight(this.layer, this.head, query, source);
    this.canvas.title = `${labels[query]} → ${labels[source]}: ${percent(weight)}`;
  }

  /** Shades the text: behind each token the weight from the chosen one, under it the weight to the chosen one. */
  shade() {
    if (!this.maps || this.chosen === null) return;
    const { n } = this.maps, given = [], got = [];
    for (let at = 0; at < n; at++) {
      given.push(this.maps.weight(this.layer, this.head, this.chosen, at));
      got.push(this.maps.weight(this.layer, this.head, at, this.chosen));
    }
    for (const token of this.tokens.querySelectorAll(".token")) {
      const at = Number(token.dataset.at);
      token.style.setProperty("--to", shadeOf(given[at]).toFixed(3));
      token.style.setProperty("--from", shadeOf(got[at]).toFixed(3));
      token.classList.toggle("here", at === this.chosen);
      token.tabIndex = at === this.chosen ? 0 : -1;
    }
    const [outgoing, incoming] = this.maps.isAttention ? ["attends to", "is attended to by"] : ["depends on", "influences"];
    this.weights.replaceChildren(this.listing(outgoing, "to", given), this.listing(incoming, "from", got));
  }

  listing(verb, kind, shares) {
    const { labels, padding } = this.maps;
    const rows = shares.map((share, at) => [share, at]).filter(([share]) => share > 0.0005)
      .sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, MAX_LISTED);
    const name = (at) => (padding[at] ? "pad" : visible(labels[at]));
    return el("div", { class: kind },
      el("p", {}, el("b", {}, el("bdi", {}, name(this.chosen))), ` (${this.chosen + 1}) ${verb}`),
      el("ol", {}, rows.map(([share, at]) => el("li", {},
        el("bdi", {}, name(at)), el("span", { class: "faint" }, ` ${at + 1}`), bar(share), el("span", { class: "share" }, percent(share))))));
  }

  // ---- head statistics ----

  async fillStatistics() {
    const { about, step } = this.model, key = `${about.id}/${step}`;
    if (this.statisticsKey === key) return;
    this.statisticsKey = key;
    const waiting = el("p", { class: "faint" }, "computing on held-out inputs …");
    this.statistics.replaceChildren(this.statistics.firstElementChild, waiting);
    try {
      const { tables } = await get(`/api/heads/${about.id}?step=${step}`);
      if (this.statisticsKey === key) waiting.replaceWith(...tables.map((table, at) => this.table(table, !at)));
    } catch (error) {
      this.statisticsKey = null;
      waiting.replaceWith(el("p", { class: "error" }, error.message));
    }
  }

  table({ title, columns, rows, notes, labels }, isFirst) {
    const kind = (at) => (at < labels ? "label" : null);
    const ofHeads = columns[0] === "layer" && columns[1] === "head";
    const isHead = (row) => ofHeads && Number(row[0]) > 0 && Number(row[1]) > 0; // not a summary of several
    const cell = (row, text, at) => (at === 1 && isHead(row) ? this.headLink(row) : el("td", { class: kind(at) }, text));
    return el("details", { open: isFirst }, el("summary", {}, title),
      el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "unseen" }, title),
        el("thead", {}, el("tr", {}, columns.map((name, at) => el("th", { class: kind(at), scope: "col" }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text, at) => cell(row, text, at))))))),
      notes.map((note) => el("p", { class: "notes" }, note)));
  }

  headLink([layer, head]) {
    const open = () => this.chooseHead(Number(layer) - 1, Number(head) - 1);
    return el("td", { class: "label" }, el("button", { type: "button", class: "plain link", onclick: open }, head));
  }
}

/** Head labels as columns, layer labels as rows, and a button for each map. */
function gridOf(layers, heads) {
  const count = (n) => Array.from({ length: n }, (_, at) => at);
  const name = (text) => el("span", { class: "faint", "aria-hidden": "true" }, text);
  const button = (layer, head) => el("button", { type: "button", tabindex: -1, "data-layer": layer, "data-head": head },
    el("canvas", { "aria-hidden": "true" }));
  const rows = count(layers).map((layer) => [name(`layer ${layer + 1}`), ...count(heads).map((head) => button(layer, head))]);
  return [name(""), ...count(heads).map((head) => name(`head ${head + 1}`)), ...rows.flat()];
}

const plural = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

function noteOf(maps, about) {
  const pads = maps.padding.filter(Boolean).length;
  const what = maps.isAttention
    ? `${plural(maps.layers, "layer")} × ${plural(maps.heads, "head")}`
    : "an LSTM has no attention; instead: the input gradients of the most likely next token";
  const padded = pads ? `, ${pads} of them padding, which this model attends to like any other token` : "";
  return `${about.task}, ${about.model}: ${what}; ${plural(maps.n, byWord.checked ? "word" : "token")}${padded}`;
}

// ---- the page ----

const sides = [];
const sameTokens = (one, other) => one.pieces.join("\0") === other.pieces.join("\0") && one.n === other.n;

/** Chooses the same token on both sides if they have the same tokens. */
function chooseToken(side, at) {
  for (const one of sides) {
    if (one === side || (one.maps && side.maps && sameTokens(one.maps, side.maps))) one.choose(at);
  }
}

async function addSide(prefix, title) {
  const side = new Side(prefix, title);
  const element = await side.build();
  place.append(element);
  if (side.model.nothing) return;
  sides.push(side);
  place.dataset.sides = sides.length;
  await side.start();
  for (const one of sides) one.draw();
}

async function removeSecond() {
  const side = sides.pop();
  side.pending?.abort();
  side.element.remove();
  place.dataset.sides = 1;
  view.set({ other_run: "", other_step: "", other_layer: "", other_head: "", other_at: "" });
  sides[0].draw();
}

const loadAll = () => { view.set({ at: "", other_at: "", text: short(text.value), by: byWord.checked ? "word" : "" }); for (const side of sides) side.load(); };

find("#request").addEventListener("submit", (event) => { event.preventDefault(); loadAll(); });
text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) loadAll(); });
byWord.addEventListener("change", loadAll);
find("#example").addEventListener("click", async () => { examples += 1; await sides[0]?.fillExample(); loadAll(); });
two.addEventListener("change", () => (two.checked ? addSide("other_", "second run") : removeSecond()));
addEventListener("resize", () => { for (const side of sides) side.draw(); });
document.addEventListener("themechange", () => { for (const side of sides) if (side.maps) { side.fillGrid(); side.draw(); } });

text.value = view.get("text");
byWord.checked = view.get("by") === "word";
two.checked = Boolean(view.get("other_run"));
await addSide("", "first run");
if (two.checked) await addSide("other_", "second run");
