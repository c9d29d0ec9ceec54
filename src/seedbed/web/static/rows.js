// Parses the CSV datasets of a spec: Vega's own reader compiles code from strings, which the page's CSP forbids.

/** Rows of CSV text as lists of strings; quoting as in RFC 4180. */
export function rowsOf(text) {
  if (!text.includes('"')) return text.trimEnd().split("\n").map((row) => row.split(","));
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') { cell += '"'; at += 1; } else quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === "," || char === "\n") {
      row.push(cell);
      cell = "";
      if (char === "\n") { rows.push(row); row = []; }
    } else cell += char;
  }
  return rows;
}

function objectsOf(text, types) {
  const [head, ...rows] = rowsOf(text);
  const read = head.map((name) => (types[name] === "number" ? (cell) => (cell === "" ? null : Number(cell)) : (cell) => cell));
  return rows.map((row) => Object.fromEntries(head.map((name, column) => [name, read[column](row[column])])));
}

/** A copy of the spec with every CSV dataset parsed. */
export function withRows(spec) {
  const types = {};
  const plain = (part) => {
    if (Array.isArray(part)) return part.map(plain);
    if (part === null || typeof part !== "object") return part;
    if (part.format?.type === "csv" && typeof part.name === "string") {
      Object.assign(types[part.name] ??= {}, part.format.parse);
      return { name: part.name };
    }
    return Object.fromEntries(Object.entries(part).map(([name, inner]) => [name, name === "datasets" ? inner : plain(inner)]));
  };
  const read = plain(spec);
  const blocks = Object.entries(spec.datasets ?? {}).map(([name, block]) =>
    [name, typeof block === "string" ? objectsOf(block, types[name] ?? {}) : block]);
  return blocks.length ? { ...read, datasets: Object.fromEntries(blocks) } : read;
}

/** The rows of each panel of a line chart, with what is known of their lines. */
export function rowsByPanel(spec, rows) {
  const lines = new Map(spec.datasets.lines.map((line) => [line.line, line]));
  const panels = spec.concat.map(() => []);
  for (const row of rows) {
    const line = lines.get(row.line);
    if (line) panels[line.panel].push({ ...line, ...row });
  }
  return panels;
}

export const panelRows = (index) => `rows of panel ${index}`;

/**
 * A line chart whose rows are joined with their lines and split by panel. Vega could do that, but interprets its
 * expressions, which takes longer than drawing the lines.
 */
export function withRowsByPanel(spec) {
  const { rows, lines, ...others } = spec.datasets ?? {};
  if (!Array.isArray(rows) || !Array.isArray(lines) || !spec.concat) return spec;
  const isDone = (step, index) => step.from?.data?.name === "lines" || step.filter === `datum.panel == ${index}`;
  const layerOf = (layer, index) => (layer.data?.name === "rows" || !layer.data
    ? { ...layer, ...(layer.data && { data: { name: panelRows(index) } }), ...(layer.transform && { transform: layer.transform.filter((step) => !isDone(step, index)) }) }
    : layer);
  const panels = rowsByPanel(spec, rows);
  return {
    ...spec, datasets: { ...others, ...Object.fromEntries(panels.map((some, index) => [panelRows(index), some])) },
    concat: spec.concat.map((panel, index) => ({ ...panel, layer: panel.layer.map((layer) => layerOf(layer, index)) })),
  };
}
