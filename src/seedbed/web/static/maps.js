// Attention maps on canvases: thumbnails of all heads, and one of them large, with the tokens along its sides.
//
// Rows are queries, columns are sources, as in the report's figures; for right-to-left text the first token and the row
// labels are on the right. Shades follow the square root of a weight, so that weak attention remains visible.

import { el } from "/static/page.js";

const MARGIN = 6; // pixels between labels and cells
const MIN_LABELLED_CELL = 7; // pixels
const MAX_CELL = 34; // pixels

/** The attention maps of one response; layers and heads are counted from 0. */
export class Maps {
  constructor(response) {
    Object.assign(this, response);
    this.n = response.labels.length;
    const bytes = Uint8Array.from(atob(response.weights), (char) => char.charCodeAt(0));
    this.weights = new Uint16Array(bytes.buffer);
    this.isAttention = response.kind === "attention";
  }

  /** The attention weight from token `query` to token `source`, from 0 to 1. */
  weight(layer, head, query, source) {
    return this.weights[((layer * this.heads + head) * this.n + query) * this.n + source] / 65535;
  }

  name(layer, head) {
    return this.isAttention ? `layer ${layer + 1}, head ${head + 1}` : "input gradients of the most likely next token";
  }
}

/** The shade of a weight, from 0 to 1: its square root, so that weak attention remains visible. */
export const shadeOf = (weight) => Math.sqrt(weight);

/** The scale of the shades, with the weights at which it has ticks. */
export function colourBar() {
  const ticks = [0, 0.1, 0.25, 0.5, 1].map((weight) => el("span", { style: { insetInlineStart: `${100 * shadeOf(weight)}%` } }, `${100 * weight} %`));
  return el("div", { class: "scale", role: "img", "aria-label": "scale of the shades: from 0 % of the attention (white) to 100 % (dark)" }, el("i"), el("div", { class: "ticks" }, ticks));
}

/** A theme colour as [r, g, b]. */
function colour(name) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
}

/** One map as a canvas of n × n pixels. */
function picture(maps, layer, head) {
  const { n } = maps, canvas = document.createElement("canvas");
  canvas.width = canvas.height = n;
  const context = canvas.getContext("2d"), data = context.createImageData(n, n), [r, g, b] = colour("--mark");
  for (let query = 0; query < n; query++) {
    for (let source = 0; source < n; source++) {
      const x = maps.right_to_left ? n - 1 - source : source;
      data.data.set([r, g, b, 255 * shadeOf(maps.weight(layer, head, query, source))], 4 * (query * n + x));
    }
  }
  context.putImageData(data, 0, 0);
  return canvas;
}

function sized(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

/** Draws a map without labels into a canvas of this side. */
export function drawSmall(canvas, maps, layer, head, side) {
  const context = sized(canvas, side, side);
  context.imageSmoothingEnabled = maps.n > side;
  context.drawImage(picture(maps, layer, head), 0, 0, side, side);
}

/** Draws a map as wide as `available`; returns a function from a pointer event to [query, source], or null. */
export function drawLarge(canvas, maps, layer, head, available, chosen) {
  const { n, labels, right_to_left: turned } = maps;
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), faint = style.getPropertyValue("--faint"), line = style.getPropertyValue("--line");
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = `12px ${style.getPropertyValue("--sans")}`;
  const longest = Math.min(110, Math.ceil(Math.max(...labels.map((label) => measure.measureText(label).width))));
  let side = Math.min(MAX_CELL, (available - longest - MARGIN) / n);
  const named = side >= MIN_LABELLED_CELL;
  if (!named) side = available / n;
  const before = named ? longest + MARGIN : 0, width = n * side, origin = turned ? 0 : before;
  const context = sized(canvas, before + width, width + before);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(maps, layer, head), origin, 0, width, width);
  context.strokeStyle = line;
  context.strokeRect(origin + 0.5, 0.5, width - 1, width - 1);
  if (chosen !== null) {
    context.strokeStyle = ink;
    context.strokeRect(origin + 0.5, chosen * side + 0.5, width - 1, Math.max(1, side - 1));
  }
  if (named) drawNames(context, maps, { side, origin, width, ink, faint, chosen, style });
  return (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - origin) / side), query = Math.floor((event.clientY - box.top) / side);
    const source = turned ? n - 1 - column : column;
    return query >= 0 && query < n && source >= 0 && source < n ? [query, source] : null;
  };
}

function drawNames(context, { labels, right_to_left: turned }, { side, origin, width, ink, faint, chosen, style }) {
  context.font = `${Math.min(12, side + 1)}px ${style.getPropertyValue("--sans")}`;
  context.textBaseline = "middle";
  context.direction = turned ? "rtl" : "ltr";
  labels.forEach((label, at) => {
    const middle = (at + 0.5) * side;
    context.fillStyle = at === chosen ? ink : faint;
    context.textAlign = turned ? "left" : "right";
    context.fillText(label, turned ? width + MARGIN : origin - MARGIN, middle, 110);
    context.save();
    context.translate(origin + (turned ? width - middle : middle), width + MARGIN);
    context.rotate(-Math.PI / 2);
    context.textAlign = "right";
    context.fillText(label, 0, 0, 110);
    context.restore();
  });
}
