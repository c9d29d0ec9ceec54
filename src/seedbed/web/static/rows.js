// Blocks of CSV in a chart as rows: Vega's own reader writes programs as text, which the page's policy forbids.

/** Rows of CSV text as lists of texts; quotes as in RFC 4180. */
export function rowsOf(text) {
  if (!text.includes('"')) return text.trimEnd().split("\n").map((row) => row.split(","));
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const sign = text[place];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[place + 1] === '"') { cell += '"'; place += 1; } else quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === "," || sign === "\n") {
      row.push(cell);
      cell = "";
      if (sign === "\n") { rows.push(row); row = []; }
    } else cell += sign;
  }
  return rows;
}

function objectsOf(text, types) {
  const [head, ...rows] = rowsOf(text);
  const read = head.map((name) => (types[name] === "number" ? (cell) => (cell === "" ? null : Number(cell)) : (cell) => cell));
  return rows.map((row) => Object.fromEntries(head.map((name, column) => [name, read[column](row[column])])));
}

/** The spec with every block of CSV read; the spec that was given stays as it is. */
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
