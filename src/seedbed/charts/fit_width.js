// What `vega_lite.fit_width` does in Python: a chart's panels so wide, and so many in a row, that they fit a page.

window.fitWidth = (spec, width) => {
  const fit = spec.usermeta?.fit;
  if (!fit || !spec.concat || !width) return spec;
  const [minPanel, growth, narrow, titledRow] = [150, 1.7, 560, 72];
  let columns = fit.columns;
  while (columns > 1 && width / columns - fit.axis < minPanel) columns -= columns === 4 ? 2 : 1;
  let side = fit.keep_side || (width >= narrow && columns === fit.columns) ? fit.side : 0;
  if (!fit.keep_side && (width - side) / columns - fit.axis < minPanel) side = 0;
  const room = Math.max(minPanel, (width - side) / columns - fit.axis);
  const withTitle = (axis, title) => (layer) => {
    const channel = layer.encoding?.[axis];
    return channel && "axis" in channel ? { ...layer, encoding: { ...layer.encoding, [axis]: { ...channel, title } } } : layer;
  };
  const concat = spec.concat.map((panel, index) => {
    const resized = { ...panel, width: Math.round(Math.min(room, growth * panel.width)) };
    if (columns === fit.columns || !fit.titles.length) return resized;
    const [text, x, y] = fit.titles[index];
    const layer = panel.layer?.map(withTitle("x", x)).map(withTitle("y", y));
    return { ...resized, ...(layer && { layer }), title: { ...panel.title, text } };
  });
  const { title, ...untitled } = spec; // where it is narrow, the caption says the same
  const kept = { ...untitled, ...(width >= narrow && title && { title }) };
  if (columns < fit.columns && fit.titles.length && spec.bounds === "flush") kept.spacing = { ...spec.spacing, row: Math.max(spec.spacing.row, titledRow) };
  if (side) return { ...kept, columns, concat };
  const [source, target] = [Math.min(fit.columns, concat.length) - 1, Math.floor((concat.length - 1) / columns) * columns];
  const moved = new Map(); // "mark channel" → the legend, which moves to the first panel of the last row
  for (const layer of concat[source].layer ?? [])
    for (const [channel, { legend }] of Object.entries(layer.encoding ?? {})) if (legend) moved.set(`${layer.mark.type} ${channel}`, legend);
  const relabel = (index) => (layer) => ({ ...layer, encoding: Object.fromEntries(Object.entries(layer.encoding ?? {}).map(([channel, one]) => {
    const legend = moved.get(`${layer.mark.type} ${channel}`);
    return [channel, legend && "legend" in one ? { ...one, legend: index === target ? legend : null } : one];
  })) });
  if (source !== target) for (const index of [source, target]) concat[index] = { ...concat[index], layer: concat[index].layer.map(relabel(index)) };
  const legendColumns = Math.min(Math.max(Math.floor(width / Math.max(fit.side, 1)), 1), 3);
  const legend = { ...spec.config?.legend, orient: "bottom", gradientLength: 120, columns: legendColumns };
  return { ...kept, columns, concat, config: { ...spec.config, legend } };
};
