// The text of the model, with what each line costs, what was fused there and what its names hold.

const WORDS = new Set(('include layer model weight fn forward generate train from return if then else require as ' +
  'ragged for in and or not none true false inf').split(' '));
const TOKEN = /(#[^\n]*)|("(?:[^"\\\n]|\\.)*")|(\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\s+|.)/gu;

// What a name of a line holds: the shapes of the operations that were bound to it there.
const shapesOfNames = new Map();
for (const each of data.programs)
  for (const op of each.primitives)
    if (op.name && op.lines.length) {
      const key = `${lineThing(op.lines[0])}:${op.name}`;
      if (!shapesOfNames.has(key)) shapesOfNames.set(key, new Set());
      shapesOfNames.get(key).add(op.shape);
    }

function tokensOf(text, file, line) {
  const nodes = [];
  for (const [all, comment, string, number, word] of text.matchAll(TOKEN)) {
    const kind = comment ? 'comment' : string ? 'string' : number ? 'number' : WORDS.has(word) ? 'word' : '';
    const shapes = word && shapesOfNames.get(`line:${file}:${line}:${word}`);
    if (!kind && !shapes) nodes.push(all);
    else {
      const title = shapes ? `${word}: ${[...shapes].join(' or ')}` : null;
      nodes.push(el('span', { class: kind || 'name', title }, all));
    }
  }
  return nodes;
}

// Config values stand behind the line of their layer: one list for each way in which it is configured.
function configsByLine() {
  const found = new Map();
  for (const module of data.modules) {
    if (!module.line || !module.config.length) continue;
    const text = module.config.map(([name, value]) => `${name} = ${value}`).join(', ');
    const key = lineThing(module.line);
    if (!found.has(key)) found.set(key, new Set());
    found.get(key).add(text);
  }
  return found;
}

function fusionMark(fusion, number) {
  const title = `${fusion.fusion} ${fusion.done ? 'done' : 'not done'}: ${fusion.reason}` +
    (fusion.times > 1 ? ` (× ${fusion.times})` : '');
  return el('button', { type: 'button', class: `mark ${fusion.done ? 'done' : 'refused'}`, title,
                        'data-thing': `fusion:${number}`, 'data-done': fusion.done ? '1' : '0', 'aria-label': title },
            `${fusion.done ? '✓' : '✗'} ${fusion.fusion}${fusion.times > 1 ? ` × ${fusion.times}` : ''}`);
}

function sourceLine(file, line, text, configs, fusions) {
  const thing = `line:${file}:${line}`;
  const row = el('div', { class: 'line', 'data-thing': thing, role: 'option', tabindex: '-1',
                          'aria-selected': 'false' },
    el('span', { class: 'share time', 'data-share': '' }, el('span', { class: 'bar' }), el('span', { class: 'text' })),
    el('span', { class: 'number' }, String(line)),
    el('span', { class: 'code' }, ...tokensOf(text, file, line)));
  const known = configs.get(thing);
  if (known && known.size <= 3)
    row.append(el('span', { class: 'config' }, [...known].join(' | ')));
  for (const number of fusions.get(thing) || []) row.append(fusionMark(data.fusions[number], number));
  return row;
}

// A standard file has only the layers that something refers to; runs of empty lines there are left out.
function fileBlock(file, number, configs, fusions) {
  const lines = el('div', { class: 'lines', role: 'listbox', 'aria-label': file.name, tabindex: '0' });
  let skipped = false;
  file.text.split('\n').forEach((text, i) => {
    if (file.name.startsWith('<') && !text) {
      skipped = true;
      return;
    }
    if (skipped && lines.firstChild) lines.append(el('div', { class: 'gap', role: 'presentation' }, '⋯'));
    skipped = false;
    lines.append(sourceLine(number, i + 1, text, configs, fusions));
  });
  return el('details', { class: 'file', open: number === 0 || !file.name.startsWith('<') ? '' : null },
    el('summary', {}, file.name), lines);
}

// The steps of a line, its calls included, share the time (measured, or else at best) and the arithmetic of the
// program.
function showShares(section) {
  const seconds = new Map(), flops = new Map();
  const known = stepsAreMeasured(), name = known ? 'measured time' : 'time at best';
  let allSeconds = 0, allFlops = 0;
  for (const step of program().steps) {
    const work = stepWork(step, state.values, state.machine);
    if (known) work.seconds = step.measured * 1e-9;
    allSeconds += work.seconds;
    allFlops += work.flop;
    for (const place of step.lines) {
      const key = lineThing(place);
      seconds.set(key, (seconds.get(key) || 0) + work.seconds);
      flops.set(key, (flops.get(key) || 0) + work.flop);
    }
  }
  for (const row of section.querySelectorAll('.line')) {
    const key = row.getAttribute('data-thing'), time = (seconds.get(key) || 0) / (allSeconds || 1);
    const flop = (flops.get(key) || 0) / (allFlops || 1), margin = row.firstChild;
    margin.querySelector('.bar').style.setProperty('width', `${100 * time}%`);
    margin.querySelector('.text').textContent = time ? showShare(time) : '';
    margin.setAttribute('data-share', String(time));
    margin.setAttribute('title',
      time || flop ? `${showShare(time)} of the ${name}, ${showShare(flop)} of the FLOP` : '');
  }
}

function viewSource(section) {
  const configs = configsByLine(), fusions = new Map();
  data.fusions.forEach((fusion, n) => {
    if (fusion.file !== null) push(fusions, lineThing([fusion.file, fusion.line]), n);
  });
  section.append(el('p', { class: 'quiet' }, 'The margin has the share of the time (measured, if it was with these ' +
    'sizes; else at best) of what each line was made into, calls included. What was fused counts for each of its ' +
    'lines: together they are more than 100 %.'));
  data.files.forEach((file, number) => section.append(fileBlock(file, number, configs, fusions)));
  // Arrows go from line to line.
  section.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const at = document.activeElement.closest('.line');
    const next = !at ? document.activeElement.querySelector('.line')
      : event.key === 'ArrowDown' ? at.nextElementSibling : at.previousElementSibling;
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  return () => showShares(section);
}
