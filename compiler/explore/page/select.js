// One selection for all views: what belongs to a thing, and which elements show it.

const linked = { lines: new Map(), byStep: [] };

// For each line the steps, operations and fusions that were made of it.
function noteLine(place, kind, thing) {
  const key = lineThing(place);
  if (!linked.lines.has(key)) linked.lines.set(key, { steps: [], ops: [], fusions: [] });
  linked.lines.get(key)[kind].push(thing);
}
data.programs.forEach((each, p) => {
  each.steps.forEach((step, n) => step.lines.forEach((place) => noteLine(place, 'steps', `step:${p}.${n}`)));
  each.ops.forEach((op, n) => op.lines.forEach((place) => noteLine(place, 'ops', `op:${p}.${n}`)));
});
data.fusions.forEach((fusion, n) => fusion.lines.forEach((place) => noteLine(place, 'fusions', `fusion:${n}`)));

const stepKernels = new Map(), stepBuffers = new Map();
function push(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}
data.kernels.forEach((kernel, n) => kernel.used_by.forEach(([p, s]) => push(stepKernels, `${p}.${s}`, `kernel:${n}`)));
data.programs.forEach((each, p) => each.buffers.forEach((buffer, n) => {
  if (buffer.first >= 0) push(stepBuffers, `${p}.${buffer.first}`, `buffer:${p}.${n}`);
}));

function numbersOf(thing) {
  const colon = thing.indexOf(':');
  return [thing.slice(0, colon), ...thing.slice(colon + 1).split(/[.:]/).map(Number)];
}

function exists(thing) {
  const [kind, a, b] = numbersOf(thing);
  const each = data.programs[a];
  switch (kind) {
    case 'line': return Boolean(data.files[a]) && b >= 1;
    case 'module': return Boolean(data.modules[a]);
    case 'op': return Boolean(each && each.ops[b]);
    case 'step': return Boolean(each && each.steps[b]);
    case 'buffer': return Boolean(each && each.buffers[b]);
    case 'kernel': return Boolean(data.kernels[a]);
    case 'fusion': return Boolean(data.fusions[a]);
    default: return false;
  }
}

// Whether a module lies in another, or is it.
function isWithin(module, outer) {
  for (let m = module; m >= 0; m = data.modules[m].parent) if (m === outer) return true;
  return false;
}

function addStep(found, p, s) {
  const step = data.programs[p].steps[s];
  found.add(`step:${p}.${s}`);
  found.add(`module:${step.module}`);
  step.ops.forEach((op) => found.add(`op:${p}.${op}`));
  step.lines.forEach((place) => found.add(lineThing(place)));
  (stepKernels.get(`${p}.${s}`) || []).forEach((thing) => found.add(thing));
  (stepBuffers.get(`${p}.${s}`) || []).forEach((thing) => found.add(thing));
}
function addOp(found, p, o) {
  const op = data.programs[p].ops[o];
  found.add(`op:${p}.${o}`);
  found.add(`module:${op.module}`);
  op.lines.forEach((place) => found.add(lineThing(place)));
  op.steps.forEach((step) => addStep(found, p, step));
}

// What belongs to a thing: what was made of it, and what it was made of. Lines that called it belong to it too, but not
// what else was made of these.
function relatedTo(thing) {
  const found = new Set([thing]);
  if (!exists(thing)) return found;
  const [kind, a, b] = numbersOf(thing);
  const addMade = (made) => made.forEach((each) => {
    const [what, p, n] = numbersOf(each);
    const own = new Set();
    if (what === 'step') addStep(own, p, n);
    else addOp(own, p, n);
    for (const one of own) if (!one.startsWith('line:')) found.add(one);
  });
  if (kind === 'line') {
    const made = linked.lines.get(thing);
    if (made) {
      addMade(made.steps);
      addMade(made.ops);
      made.fusions.forEach((fusion) => found.add(fusion));
    }
  } else if (kind === 'module') {
    data.programs.forEach((each, p) => {
      each.steps.forEach((step, s) => { if (isWithin(step.module, a)) addStep(found, p, s); });
      each.ops.forEach((op, o) => { if (isWithin(op.module, a)) addOp(found, p, o); });
    });
    data.fusions.forEach((fusion, n) => { if (fusion.modules.some((m) => isWithin(m, a))) found.add(`fusion:${n}`); });
  } else if (kind === 'step') addStep(found, a, b);
  else if (kind === 'op') addOp(found, a, b);
  else if (kind === 'buffer') {
    const buffer = data.programs[a].buffers[b];
    if (buffer.first >= 0) addStep(found, a, buffer.first);
  } else if (kind === 'kernel') data.kernels[a].used_by.forEach(([p, s]) => addStep(found, p, s));
  else if (kind === 'fusion') addFusion(found, data.fusions[a]);
  if (kind === 'step' || kind === 'op' || kind === 'buffer') addFusionsOf(found, a);
  return found;
}

// Operations and steps of its modules that its own line was made into.
function addFusion(found, fusion) {
  fusion.lines.forEach((place) => found.add(lineThing(place)));
  fusion.modules.forEach((module) => found.add(`module:${module}`));
  const made = linked.lines.get(lineThing(fusion.lines[0] || [fusion.file, fusion.line]));
  (made ? made.ops : []).forEach((thing) => {
    const [, p, o] = numbersOf(thing);
    if (p === fusion.program && fusion.modules.includes(data.programs[p].ops[o].module)) addOp(found, p, o);
  });
}
function addFusionsOf(found, p) {
  data.fusions.forEach((fusion, n) => {
    const first = fusion.lines[0];
    if (fusion.program === p && first && found.has(lineThing(first)) &&
        fusion.modules.some((module) => found.has(`module:${module}`))) found.add(`fusion:${n}`);
  });
}

// ---- the selection ----

const selection = { thing: null, related: new Set(), listeners: [] };
function whenSelected(listener) { selection.listeners.push(listener); }

function markSelection(root) {
  for (const node of root.querySelectorAll('[data-thing]')) {
    const thing = node.getAttribute('data-thing');
    node.setAttribute('aria-selected', selection.related.has(thing) ? 'true' : 'false');
    node.classList.toggle('chosen', thing === selection.thing);
  }
}

function select(thing) {
  selection.thing = thing && exists(thing) ? thing : null;
  selection.related = selection.thing ? relatedTo(selection.thing) : new Set();
  const [kind, p] = selection.thing ? numbersOf(selection.thing) : [];
  if (['op', 'step', 'buffer'].includes(kind) && p !== state.program) showProgram(p);
  showSelection();
  markSelection(document.getElementById('main'));
  for (const listener of selection.listeners) listener();
}

// A click or Enter on anything that stands for a thing selects it.
function followClicks(root) {
  const thingOf = (event) => {
    const node = event.target.closest('[data-thing]');
    return node && root.contains(node) ? node.getAttribute('data-thing') : null;
  };
  root.addEventListener('click', (event) => {
    const thing = thingOf(event);
    if (thing) choose(thing);
  });
  root.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    const thing = thingOf(event);
    if (!thing) return;
    event.preventDefault();
    choose(thing);
  });
}

// ---- what is said of it ----

function thingTitle(thing) {
  const [kind, a, b] = numbersOf(thing);
  switch (kind) {
    case 'line': return `${fileName(a)}:${b}`;
    case 'module': return modulePath(a);
    case 'op': return `${data.programs[a].ops[b].op} in ${modulePath(data.programs[a].ops[b].module)}`;
    case 'step': return `${b}: ${stepTitle(data.programs[a], data.programs[a].steps[b])}`;
    case 'buffer': return `${b}: ${data.programs[a].buffers[b].name || 'buffer'}`;
    case 'kernel': return kernelTitle(data.kernels[a]);
    default: return `${data.fusions[a].fusion} ${data.fusions[a].done ? 'done' : 'refused'}`;
  }
}

// A product that several became names all of them.
function stepTitle(each, step) {
  const op = each.ops[step.ops[0]];
  const parts = op ? op.fused_from.map((n) => each.primitives[n]).filter((primitive) => primitive.op === 'linear') : [];
  const names = [...new Set(parts.map((primitive) => modulePath(primitive.module)))];
  if (names.length < 2) return `${step.op} ${modulePath(step.module)}`;
  const last = names.map((name) => name.split('.').pop());
  return `${step.op} ${last.join(', ')} of ${names[0].split('.').slice(0, -1).join('.') || data.model}`;
}

const KINDS = [['line', 'lines'], ['module', 'modules'], ['op', 'operations'], ['step', 'steps'],
               ['buffer', 'buffers'], ['kernel', 'kernels'], ['fusion', 'fusions']];

// What the steps of this program cost that belong to the selection, and what share of a run that is.
function costFacts() {
  const each = program(), known = stepsAreMeasured();
  const timeOf = (step, work) => (known ? step.measured * 1e-9 : work.seconds);
  let flop = 0, time = 0, all = 0, weights = 0, n = 0;
  each.steps.forEach((step, s) => {
    const work = stepWork(step, state.values, state.machine), own = timeOf(step, work);
    all += own;
    if (!selection.related.has(`step:${state.program}.${s}`)) return;
    n++;
    flop += work.flop;
    time += own;
    weights += step.weight_bytes;
  });
  if (!n) return [];
  return [['costs', `${showShare(all ? time / all : 0)} of the time ${known ? 'measured' : 'at best'}: ` +
    `${showSeconds(time)} in ${n} step${n > 1 ? 's' : ''}`], ['FLOP', showFlop(flop)],
    ['reads', `${showBytes(weights)} of weights`]];
}

function facts(thing) {
  const [kind, a, b] = numbersOf(thing), each = data.programs[a], list = [];
  if (kind === 'op') {
    const op = each.ops[b];
    list.push(['shape', op.shape]);
    if (op.expr) list.push(['expression', op.expr]);
    if (op.fused_from.length)
      list.push(['made of', op.fused_from.map((n) => each.primitives[n].op).join(', ')]);
  } else if (kind === 'step') {
    const step = each.steps[b], work = stepWork(step, state.values, state.machine);
    list.push(['FLOP', `${data.formulas[step.flop]} = ${showFlop(work.flop)}`]);
    list.push(['reads', `${showBytes(step.weight_bytes)} of weights`]);
    list.push(['moves', `${data.formulas[step.moved_bytes]} = ${showBytes(formula(step.moved_bytes)(state.values))}`]);
    list.push(['at best', `${showSeconds(work.seconds)}, ${bound(step, work)}`]);
  } else if (kind === 'buffer') {
    const buffer = each.buffers[b];
    list.push(['elements', `${data.formulas[buffer.elements]} = ${formula(buffer.elements)(state.values)}`]);
    list.push(['live in steps', buffer.first < 0 ? 'none' : `${buffer.first} to ${buffer.last}`]);
  } else if (kind === 'module') {
    const module = data.modules[a];
    if (module.layer) list.push(['layer', module.layer]);
    for (const [name, value] of module.config) list.push([name, value]);
    for (const weight of module.weights) list.push([weight.name, `${weight.shape}, ${showBytes(weight.bytes)}`]);
  } else if (kind === 'fusion') {
    list.push([data.fusions[a].done ? 'done' : 'refused', data.fusions[a].reason]);
    if (data.fusions[a].times > 1) list.push(['times', String(data.fusions[a].times)]);
  } else if (kind === 'kernel') {
    list.push(['name', data.kernels[a].name]);
    for (const [isa, code] of Object.entries(data.kernels[a].code)) list.push([isa, countsText(code)]);
  } else if (kind === 'line') {
    const line = data.files[a].text.split('\n')[b - 1];
    if (line !== undefined) list.push(['text', line.trim()]);
    if (selection.related.size === 1) list.push(['made of it', 'nothing that runs in any program']);
  }
  return ['line', 'module', 'fusion', 'op'].includes(kind) ? list.concat(costFacts()) : list;
}

// Of a fusion, as its marks say it.
function doneOf(thing) {
  const [kind, number] = numbersOf(thing);
  return kind === 'fusion' ? (data.fusions[number].done ? '1' : '0') : null;
}

// Paths are broken behind their points.
const breakable = (text) => text.split('.').flatMap((part, i) => (i ? ['.', el('wbr'), part] : [part]));

// By file and line, or by program and number.
function inOrder(a, b) {
  const [x, y] = [numbersOf(a), numbersOf(b)];
  return x[1] - y[1] || (x[2] || 0) - (y[2] || 0);
}

function showSelection() {
  const place = clear(document.getElementById('selection'));
  if (!selection.thing) {
    place.append(el('p', { class: 'quiet' }, 'Nothing is selected: click a line, a step or a mark.'));
    return;
  }
  const [kind] = numbersOf(selection.thing), MOST = 12;
  place.append(el('h2', {}, ...breakable(`${kind} ${thingTitle(selection.thing)}`)));
  place.append(el('dl', {}, ...facts(selection.thing).flatMap(([name, value]) =>
    [el('dt', {}, name), el('dd', {}, value)])));
  for (const [of, title] of KINDS) {
    const things = [...selection.related].filter((thing) => thing.startsWith(of + ':') && thing !== selection.thing)
      .sort(inOrder);
    if (!things.length) continue;
    const list = el('ul', {}, ...things.slice(0, MOST).map((thing) =>
      el('li', {}, el('button', { type: 'button', class: 'link', 'data-thing': thing, 'data-done': doneOf(thing) },
        ...breakable(thingTitle(thing))))));
    if (things.length > MOST) list.append(el('li', { class: 'quiet' }, `and ${things.length - MOST} more`));
    place.append(el('h3', {}, things.length === 1 ? `1 ${title.slice(0, -1)}` : `${things.length} ${title}`), list);
  }
}
