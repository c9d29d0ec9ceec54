// Playground: text streams in token by token, coloured by surprisal; generation can continue from any alternative.

import { el, find, get, number, post, notify, view } from "/static/page.js";
import { bar, chooser, follow, percent, roving, short, tokenElement, visible } from "/static/models.js";

const PARAMETERS = ["temperature", "top_k", "top_p", "tokens", "seed"];
const BINS = [1, 2, 4, 6, 9]; // bits at which the next colour starts, as in the legend
const prompt = find("#prompt"), two = find("#two"), place = find("#sides"), stop = find("#stop");
const parameter = (name) => Number(find(`#${name}`).value);
const samplingFilters = () => ({ temperature: parameter("temperature"), top_k: parameter("top_k"), top_p: parameter("top_p") });
let examples = 0;

/** One model and its generated text. */
class Side {
  constructor(prefix, title) {
    this.prefix = prefix;
    this.title = title;
    this.tokens = []; // { token, text, name, bits }
    this.nPrompt = 0; // how many of them are the prompt
  }

  async build() {
    this.model = await chooser(this.prefix, this.title, () => this.changed());
    if (this.model.nothing) return this.model.nothing;
    this.note = el("p", { class: "faint note", "aria-live": "polite" });
    this.text = el("div", { class: "tokens written", dir: "auto", role: "group", "aria-label": "the text, token by token" });
    this.others = el("div", { class: "others", "aria-live": "polite", hidden: true });
    this.inside = el("a", { class: "button", hidden: true }, "Look inside this text");
    this.element = el("section", { class: "side", "aria-label": this.title },
      this.model.place, this.note, el("div", { class: "halves" }, el("div", {}, this.text, this.inside), this.others));
    const open = (event) => {
      const token = event.target.closest(".token");
      if (token) { event.preventDefault(); this.choose(Number(token.dataset.at)); }
    };
    this.text.addEventListener("click", open);
    this.text.addEventListener("keydown", (event) => (event.key === "Enter" || event.key === " ") && open(event));
    roving(this.text);
    return this.element;
  }

  start() { return this.model.start(); }

  /** Another model has other tokens, so the text is cleared. */
  changed() {
    this.cancel();
    this.clear();
    const { about } = this.model;
    if (!prompt.value && !view.get("prompt")) prompt.value = about.prompt || (about.completes ? "1 + 2 =" : "");
    this.note.textContent = about.predicts === "label" ? "classifies a text" : "";
  }

  clear() {
    this.tokens = [];
    this.text.replaceChildren();
    this.others.hidden = this.inside.hidden = true;
    this.note.classList.remove("error");
  }

  cancel() { this.pending?.abort(); }

  /** Continues a prompt, or token ids; the text already shown stays. */
  async write(given = prompt.value) {
    const { about, step } = this.model;
    if (!about) return;
    this.cancel();
    const pending = this.pending = new AbortController();
    if (typeof given === "string") this.clear(); else this.others.hidden = true;
    this.note.textContent = "waiting for the model …";
    busy();
    try {
      const body = { run: about.id, step, given, tokens: parameter("tokens"), seed: parameter("seed"), ...samplingFilters() };
      await follow("/api/write", body, (value) => this.receive(value), pending.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error.message);
    } finally {
      if (this.pending === pending) { this.pending = null; this.finish(); }
      busy();
    }
  }

  receive(value) {
    if (value.labels) this.showLabels(value);
    else if (value.given) this.begin(value);
    else if (value.token === undefined) this.text.append(value.text);
    else this.add(value);
  }

  begin({ given, notice, context }) {
    this.context = context;
    const fresh = this.tokens.length ? given.slice(-1) : given;
    for (const token of fresh) this.add(token, true);
    this.nPrompt = this.tokens.length;
    this.began = performance.now();
    this.notice = notice;
    this.progress();
  }

  add(token, isGiven = false) {
    const at = this.tokens.push(token) - 1, known = token.bits !== null;
    const bin = known ? BINS.filter((from) => token.bits >= from).length : null;
    this.text.append(tokenElement(token.text, token.name, {
      "data-at": at, "data-bits": bin, "data-given": isGiven ? "yes" : null, title: known ? `${token.bits.toFixed(2)} bits` : null,
      tabindex: at ? -1 : 0,
    }));
    if (!isGiven) this.progress();
  }

  progress() {
    const written = this.tokens.slice(this.nPrompt), seconds = (performance.now() - this.began) / 1000;
    const bits = written.reduce((sum, one) => sum + one.bits, 0) / written.length;
    const rate = written.length > 1 ? `, ${number(Math.round(written.length / seconds))} per second` : "";
    const text = written.length ? `${number(written.length)} tokens${rate}; ${bits.toFixed(2)} bits per token` : "generating …";
    this.note.textContent = this.notice ? `${text}. ${this.notice}` : text;
  }

  finish() {
    const { about, step } = this.model;
    if (!this.tokens.length) return;
    const text = this.tokens.slice(-this.context).map((one) => one.text).join("");
    this.inside.href = `/inside?${new URLSearchParams({ run: about.id, step, text: short(text) })}`;
    this.inside.hidden = false;
    if (about.completes && this.tokens.length > this.nPrompt) this.choose(this.nPrompt);
  }

  showError(message) {
    this.note.textContent = message;
    this.note.classList.add("error");
  }

  showLabels({ labels, notice }) {
    this.note.textContent = notice ?? `most likely label: ${labels[0].name}`;
    this.text.textContent = prompt.value;
    this.others.hidden = false;
    this.others.replaceChildren(el("h2", {}, "Label probabilities"),
      el("ol", { class: "alternatives" }, labels.map(({ name, probability }) =>
        el("li", {}, el("bdi", {}, name), bar(probability), el("span", { class: "share" }, percent(probability))))));
  }

  // ---- alternatives ----

  async choose(at) {
    const { about, step } = this.model, token = this.tokens[at];
    for (const one of this.text.querySelectorAll(".here")) one.classList.remove("here");
    const element = this.text.querySelector(`[data-at="${at}"]`);
    element?.classList.add("here");
    if (!at) return notify("the first token has no context, so it has no alternatives");
    const ids = this.tokens.slice(0, at).map((one) => one.token), nPrompt = Math.min(at, this.nPrompt);
    const request = this.latest = {};
    try {
      const body = { run: about.id, step, ids, n_prompt: nPrompt, chosen: token.token, ...samplingFilters() };
      const { alternatives } = await post("/api/alternatives", body);
      if (this.latest === request) this.showAlternatives(at, alternatives);
    } catch (error) { this.showError(error.message); }
  }

  showAlternatives(at, alternatives) {
    const here = this.tokens[at];
    const before = this.tokens.slice(Math.max(0, at - 12), at).map((one) => one.text).join("");
    this.others.hidden = false;
    this.others.replaceChildren(
      el("h2", {}, "After ", el("bdi", {}, `… ${before.trim() || visible(before)}`)),
      el("p", { class: "faint" }, "the model's probabilities; in brackets, after temperature, top-k and top-p. Choose one to continue from it."),
      el("ol", { class: "alternatives" }, alternatives.map((one) => this.alternative(at, one, here.token === one.token))));
  }

  alternative(at, { token, name, probability, filtered }, isHere) {
    const resume = () => { this.cut(at); this.write([...this.tokens.map((one) => one.token), token]); };
    const spoken = `${visible(name)}, ${percent(probability)}${isHere ? ", chosen here" : ""}`;
    return el("li", { class: isHere ? "here" : null },
      el("button", { type: "button", "aria-label": `continue from ${spoken}`, onclick: resume },
        el("bdi", {}, visible(name)), bar(probability),
        el("span", { class: "share" }, `${percent(probability)} (${filtered ? percent(filtered) : "–"})`)));
  }

  cut(at) {
    this.cancel();
    this.tokens.length = at;
    for (const one of this.text.querySelectorAll(".token")) if (Number(one.dataset.at) >= at) one.remove();
    while (this.text.lastChild?.nodeType === Node.TEXT_NODE) this.text.lastChild.remove();
  }
}

// ---- the page ----

const sides = [];
const busy = () => { stop.disabled = !sides.some((side) => side.pending); };

function showParameters() {
  for (const input of document.querySelectorAll(".sampling input[type=range]")) {
    input.previousElementSibling.textContent = input.id === "top_k" && input.value === "0" ? "all" : input.value;
  }
}

function saveState() {
  const changed = PARAMETERS.map((name) => [name, find(`#${name}`)]).map(([name, input]) => [name, input.value === input.defaultValue ? "" : input.value]);
  view.set({ prompt: short(prompt.value), ...Object.fromEntries(changed) });
}

const generateAll = () => { saveState(); for (const side of sides) side.write(); };

async function addSide(prefix, title) {
  const side = new Side(prefix, title);
  place.append(await side.build());
  if (side.model.nothing) return;
  sides.push(side);
  place.dataset.sides = sides.length;
  await side.start();
}

function removeSecond() {
  const side = sides.pop();
  side.cancel();
  side.element.remove();
  place.dataset.sides = 1;
  view.set({ other_run: "", other_step: "" });
}

find("#request").addEventListener("submit", (event) => { event.preventDefault(); generateAll(); });
prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) generateAll(); });
stop.addEventListener("click", () => { for (const side of sides) side.cancel(); });
find("#another").addEventListener("click", () => { find("#seed").value = parameter("seed") + 1; generateAll(); });
find("#example").addEventListener("click", async () => {
  const { about, step } = sides[0]?.model ?? {};
  if (!about) return;
  prompt.value = (await get(`/api/models/${about.id}/example?step=${step}&n=${examples++}`)).text;
  saveState();
});
two.addEventListener("change", () => (two.checked ? addSide("other_", "second model") : removeSecond()));
find(".sampling").addEventListener("input", showParameters);
find(".sampling").addEventListener("change", saveState);
prompt.addEventListener("change", saveState);

prompt.value = view.get("prompt");
for (const name of PARAMETERS) if (view.get(name)) find(`#${name}`).value = view.get(name);
showParameters();
two.checked = Boolean(view.get("other_run"));
await addSide("", "first model");
if (two.checked) await addSide("other_", "second model");
find("#write").disabled = !sides.length;
