// Playground: text streams in token by token, coloured by surprisal; each token has alternatives to go on from.

import { el, find, get, number, post, say, view } from "/static/page.js";
import { bar, chooser, follow, percent, roving, short, tokenElement, visible } from "/static/models.js";

const DIALS = ["temperature", "top_k", "top_p", "tokens", "seed"];
const BINS = [1, 2, 4, 6, 9]; // bits from which the next colour begins; as in the legend
const prompt = find("#prompt"), two = find("#two"), place = find("#sides"), stop = find("#stop");
const dial = (name) => Number(find(`#${name}`).value);
const drawing = () => ({ temperature: dial("temperature"), top_k: dial("top_k"), top_p: dial("top_p") });
let examples = 0;

/** One model and what it wrote. */
class Side {
  constructor(prefix, title) {
    this.prefix = prefix;
    this.title = title;
    this.tokens = []; // { token, text, name, bits }
    this.begun = 0; // how many of them were given when the model began to write
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

  /** Another model has other tokens, so that its text begins anew. */
  changed() {
    this.cancel();
    this.clear();
    const { about } = this.model;
    if (!prompt.value && !view.get("prompt")) prompt.value = about.prompt || (about.task === "arithmetic" ? "1 + 2 =" : "");
    this.note.textContent = about.task === "labels" ? "tells the label of a text" : "";
  }

  clear() {
    this.tokens = [];
    this.text.replaceChildren();
    this.others.hidden = this.inside.hidden = true;
    this.note.classList.remove("error");
  }

  cancel() { this.asking?.abort(); }

  /** Writes on from a prompt, or from tokens; what is shown already stays where it is. */
  async write(given = prompt.value) {
    const { about, step } = this.model;
    if (!about) return;
    this.cancel();
    const asking = this.asking = new AbortController();
    if (typeof given === "string") this.clear(); else this.others.hidden = true;
    this.note.textContent = "asking the model …";
    busy();
    try {
      const body = { run: about.id, step, given, tokens: dial("tokens"), seed: dial("seed"), ...drawing() };
      await follow("/api/write", body, (value) => this.take(value), asking.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.refuse(error.message);
    } finally {
      if (this.asking === asking) { this.asking = null; this.finish(); }
      busy();
    }
  }

  take(value) {
    if (value.labels) this.showLabels(value);
    else if (value.given) this.begin(value);
    else if (value.token === undefined) this.text.append(value.text);
    else this.add(value);
  }

  begin({ given, notice, context }) {
    this.context = context;
    const fresh = this.tokens.length ? given.slice(-1) : given;
    for (const token of fresh) this.add(token, true);
    this.begun = this.tokens.length;
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
    const written = this.tokens.slice(this.begun), seconds = (performance.now() - this.began) / 1000;
    const bits = written.reduce((sum, one) => sum + one.bits, 0) / written.length;
    const rate = written.length > 1 ? `, ${number(Math.round(written.length / seconds))} a second` : "";
    const said = written.length ? `${number(written.length)} tokens${rate}; ${bits.toFixed(2)} bits a token` : "writing …";
    this.note.textContent = this.notice ? `${said}. ${this.notice}` : said;
  }

  finish() {
    const { about, step } = this.model;
    if (!this.tokens.length) return;
    const text = this.tokens.slice(-this.context).map((one) => one.text).join("");
    this.inside.href = `/inside?${new URLSearchParams({ run: about.id, step, text: short(text) })}`;
    this.inside.hidden = false;
    if (about.task === "arithmetic" && this.tokens.length > this.begun) this.choose(this.begun);
  }

  refuse(sentence) {
    this.note.textContent = sentence;
    this.note.classList.add("error");
  }

  showLabels({ labels, notice }) {
    this.note.textContent = notice ?? `the likeliest label: ${labels[0].name}`;
    this.text.textContent = prompt.value;
    this.others.hidden = false;
    this.others.replaceChildren(el("h3", {}, "How likely each label is"),
      el("ol", { class: "alternatives" }, labels.map(({ name, probability }) =>
        el("li", {}, el("bdi", {}, name), bar(probability), el("span", { class: "share" }, percent(probability))))));
  }

  // ---- alternatives ----

  async choose(at) {
    const { about, step } = this.model, token = this.tokens[at];
    for (const one of this.text.querySelectorAll(".here")) one.classList.remove("here");
    const element = this.text.querySelector(`[data-at="${at}"]`);
    element?.classList.add("here");
    if (!at) return say("nothing comes before the first token, so nothing can be told of it");
    const ids = this.tokens.slice(0, at).map((one) => one.token), begun = at < this.begun ? at : this.begun;
    const asked = this.looking = {};
    try {
      const body = { run: about.id, step, ids, begun, chosen: token.token, ...drawing() };
      const { alternatives } = await post("/api/alternatives", body);
      if (this.looking === asked) this.showAlternatives(at, alternatives);
    } catch (error) { this.refuse(error.message); }
  }

  showAlternatives(at, alternatives) {
    const here = this.tokens[at];
    const before = this.tokens.slice(Math.max(0, at - 12), at).map((one) => one.text).join("");
    this.others.hidden = false;
    this.others.replaceChildren(
      el("h3", {}, "After ", el("bdi", {}, `… ${before.trim() || visible(before)}`)),
      el("p", { class: "faint" }, "as the model has it; in brackets, as it is drawn with these dials. Choose one to go on from it."),
      el("ol", { class: "alternatives" }, alternatives.map((one) => this.alternative(at, one, here.token === one.token))));
  }

  alternative(at, { token, name, probability, drawn }, isHere) {
    const goOn = () => { this.cut(at); this.write([...this.tokens.map((one) => one.token), token]); };
    const spoken = `${visible(name)}, ${percent(probability)}${isHere ? ", stands here" : ""}`;
    return el("li", { class: isHere ? "here" : null },
      el("button", { type: "button", "aria-label": `go on from ${spoken}`, onclick: goOn },
        el("bdi", {}, visible(name)), bar(probability),
        el("span", { class: "share" }, `${percent(probability)} (${drawn ? percent(drawn) : "–"})`)));
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
const busy = () => { stop.disabled = !sides.some((side) => side.asking); };

function tellDials() {
  for (const input of document.querySelectorAll(".dials input[type=range]")) {
    input.previousElementSibling.textContent = input.id === "top_k" && input.value === "0" ? "all" : input.value;
  }
}

function keep() {
  const changed = DIALS.map((name) => [name, find(`#${name}`)]).map(([name, input]) => [name, input.value === input.defaultValue ? "" : input.value]);
  view.set({ prompt: short(prompt.value), ...Object.fromEntries(changed) });
}

const writeAll = () => { keep(); for (const side of sides) side.write(); };

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

find("#asking").addEventListener("submit", (event) => { event.preventDefault(); writeAll(); });
prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) writeAll(); });
stop.addEventListener("click", () => { for (const side of sides) side.cancel(); });
find("#another").addEventListener("click", () => { find("#seed").value = dial("seed") + 1; writeAll(); });
find("#example").addEventListener("click", async () => {
  const { about, step } = sides[0]?.model ?? {};
  if (!about) return;
  prompt.value = (await get(`/api/models/${about.id}/example?step=${step}&n=${examples++}`)).text;
  keep();
});
two.addEventListener("change", () => (two.checked ? addSide("other_", "second model") : removeSecond()));
find(".dials").addEventListener("input", tellDials);
find(".dials").addEventListener("change", keep);
prompt.addEventListener("change", keep);

prompt.value = view.get("prompt");
for (const name of DIALS) if (view.get(name)) find(`#${name}`).value = view.get(name);
tellDials();
two.checked = Boolean(view.get("other_run"));
await addSide("", "first model");
if (two.checked) await addSide("other_", "second model");
find("#write").disabled = !sides.length;
