// A run from left to right: its steps one after another, as wide as their time, and the modules that they belong to
// above them. The time is what was measured, if it was with these sizes; else the estimate.

const SPANS = { width: 960, row: 20, letter: 6.2 };

// Parts of a path, as modules: those of the list that it goes through.
function modulesAround(module) {
  const around = [];
  for (let m = module; m > 0; m = data.modules[m].parent) around.unshift(m);
  return around;
}

// { module or step, depth, from, to }: a module that is left and entered again has a second span.
function spansOf(rows) {
  const spans = [{ module: 0, depth: 0, from: 0, to: 0 }];
  let open = [], at = 0;
  for (const row of rows) {
    const around = modulesAround(row.step.module);
    let common = 0;
    while (common < open.length && common < around.length && open[common].module === around[common]) common++;
    open = open.slice(0, common);
    for (const module of around.slice(common)) {
      open.push({ module, depth: open.length + 1, from: at, to: at });
      spans.push(open[open.length - 1]);
    }
    spans.push({ row, depth: around.length + 1, from: at, to: at + row.time });
    at += row.time;
    for (const span of open) span.to = at;
  }
  spans[0].to = at;
  return spans;
}

function spanNode(span, all) {
  const scale = SPANS.width / all, x = span.from * scale, width = (span.to - span.from) * scale;
  const thing = span.row ? `step:${state.program}.${span.row.number}` : `module:${span.module}`;
  const name = span.row ? span.row.step.op : span.module ? modulePath(span.module).split('.').pop() : data.model;
  const time = span.to - span.from;
  const whole = span.row ? span.row.title : modulePath(span.module);
  const title = `${whole}: ${showSeconds(time)}, ${showShare(time / all)}`;
  const node = svg('g', { class: span.row ? 'span of-step' : 'span', role: span.row ? 'option' : 'button',
                          tabindex: '0', 'aria-label': title },
    svg('title', {}, title),
    svg('rect', { x, y: span.depth * SPANS.row, width: Math.max(0.3, width), height: SPANS.row - 1 }));
  if (span.row) {
    node.setAttribute('data-thing', thing);
    node.setAttribute('aria-selected', selection.related.has(thing) ? 'true' : 'false');
  } else { // a way to the module, not a mark of it: what is selected among steps are steps
    node.setAttribute('data-module', String(span.module));
    node.addEventListener('click', () => choose(thing));
    node.addEventListener('keydown', (event) => { if (event.key === 'Enter') choose(thing); });
  }
  const room = Math.floor((width - 6) / SPANS.letter);
  if (room >= 3)
    node.append(svg('text', { x: x + 3, y: span.depth * SPANS.row + 14 },
      name.length <= room ? name : `${name.slice(0, room - 1)}…`));
  return node;
}

// `rows`: of the table of steps, in any order.
function showSpans(place, rows) {
  const spans = spansOf([...rows].sort((a, b) => a.number - b.number)), all = spans[0].to;
  clear(place);
  if (!all) {
    place.append(el('p', { class: 'quiet' }, 'No step takes time.'));
    return;
  }
  const shown = spans.filter((span) => span.to > span.from), deepest = Math.max(...shown.map((span) => span.depth));
  place.append(el('p', { class: 'quiet' }, `${showSeconds(all)}, ${stepsAreMeasured() ? 'measured' : 'estimated'}: ` +
      'from left to right as the steps run, with their modules above.'),
    svg('svg', { viewBox: `0 0 ${SPANS.width} ${(deepest + 1) * SPANS.row}`, class: 'chart spans', role: 'listbox',
                 'aria-label': 'steps of a run, one after another' }, ...shown.map((span) => spanNode(span, all))));
}
