// Sizes, threads and the machine's figures at the top of all views, and the totals that follow from them.

const state = { program: 0, values: new Map(), threads: data.machine.threads, machine: new Map(), listeners: [] };
for (const name of ['flop_per_second', 'int8_flop_per_second', 'bytes_per_second'])
  state.machine.set(name, data.machine[name]);

const program = () => data.programs[state.program];

// A size that two programs have in common has one value.
for (const each of data.programs)
  for (const size of each.sizes) if (!state.values.has(size.name)) state.values.set(size.name, size.default);

function whenSizesChange(listener) { state.listeners.push(listener); }
function sizesChanged() {
  showTotals();
  for (const listener of state.listeners) listener();
}

// ---- what a step does ----

function stepFlop(step, sizes) {
  const causal = step.causal;
  if (causal && formula(causal.queries)(sizes) === formula(causal.keys)(sizes)) return formula(causal.flop)(sizes);
  return formula(step.flop)(sizes);
}

function stepWork(step, sizes, machine) {
  const flop = stepFlop(step, sizes), cache = formula(step.cache_bytes)(sizes);
  const rate = step.whole ? machine.get('int8_flop_per_second') : machine.get('flop_per_second');
  const computing = flop / rate, reading = (step.weight_bytes + cache) / machine.get('bytes_per_second');
  return { flop, cache, computing, reading, seconds: Math.max(computing, reading) };
}

// ---- what was measured ----

// Times of steps and runs were measured with some sizes and threads; with others they say nothing.
const runsMeasured = data.runs || [], runsOfOther = (data.compare && data.compare.runs) || [];
const runAt = (each, sizes, run) => each.sizes.every((size, i) => sizes.get(size.name) === run.sizes[i]);
function measuredRun(each, sizes, threads) {
  if (threads !== data.machine.threads) return undefined;
  const runs = each === data.programs[0] ? runsMeasured
    : data.compare && each === data.compare.programs[0] ? runsOfOther : [];
  return runs.find((run) => runAt(each, sizes, run));
}
const stepsAreMeasured = () => state.threads === data.machine.threads && runsMeasured.length > 0 &&
  program() === data.programs[0] && runAt(program(), state.values, runsMeasured[0]);

// The least bytes that are known to be enough: those of the next stops. `exact`: all sizes are stops.
function workspaceOf(each, sizes, threads) {
  const counts = Object.keys(each.workspace).map(Number).sort((a, b) => a - b);
  const found = counts.find((count) => count >= threads);
  if (found === undefined) return { bytes: NaN, exact: false };
  let exact = found === threads;
  const key = [];
  for (const size of each.sizes) {
    const value = sizes.get(size.name), at = size.stops.findIndex((stop) => stop >= value);
    if (at < 0) return { bytes: NaN, exact: false };
    exact = exact && size.stops[at] === value;
    key.push(at);
  }
  const bytes = each.workspace[found][key.join(',')];
  return { bytes: bytes === undefined ? NaN : bytes, exact };
}

// `programs`: those of the same model.
function totalsOf(each, sizes, threads, machine, programs = data.programs) {
  const totals = { flop: formula(each.flop)(sizes), flop_run: 0, int8_flop: 0, weight_bytes: 0, cache_bytes: 0,
                   cache_bytes_per_token: 0, roofline_seconds: 0, io_bytes: 0 };
  for (const step of each.steps) {
    const work = stepWork(step, sizes, machine);
    totals.flop_run += work.flop;
    if (step.whole) totals.int8_flop += work.flop;
    totals.weight_bytes += step.weight_bytes;
    totals.cache_bytes += work.cache;
    totals.roofline_seconds += work.seconds;
  }
  for (const other of programs)
    for (const cache of other.caches) if (!cache.of_encoder) totals.cache_bytes_per_token += cache.bytes_per_token;
  for (const tensor of each.inputs.concat(each.outputs)) totals.io_bytes += formula(tensor.bytes)(sizes);
  const run = measuredRun(each, sizes, threads);
  totals.measured_seconds = run ? run.median_seconds : NaN;
  const workspace = workspaceOf(each, sizes, threads);
  totals.workspace_bytes = workspace.bytes;
  totals.exact = workspace.exact;
  return totals;
}

const TOTALS = [
  ['flop', 'FLOP as written', showFlop], ['flop_run', 'FLOP of a run', showFlop],
  ['int8_flop', 'of these int8', showFlop], ['weight_bytes', 'weights read', showBytes],
  ['cache_bytes', 'caches read', showBytes], ['cache_bytes_per_token', 'caches a token', showBytes],
  ['roofline_seconds', 'time at best', showSeconds],
  ...(runsMeasured.length ? [['measured_seconds', 'time measured', showSeconds]] : []),
  ['workspace_bytes', 'workspace', showBytes],
  ['io_bytes', 'inputs and outputs', showBytes]];

function showTotals() {
  const totals = totalsOf(program(), state.values, state.threads, state.machine);
  for (const [name, , show] of TOTALS) {
    const cell = document.querySelector(`[data-total=${name}]`), value = totals[name];
    const known = Number.isFinite(value), most = name === 'workspace_bytes' && !totals.exact;
    cell.setAttribute('data-value', known ? String(value) : '');
    cell.textContent = known ? (most ? 'at most ' : '') + show(value) :
      name === 'measured_seconds' ? 'not with these sizes' : 'not known';
  }
  document.getElementById('folded').textContent = foldedText();
  showLargest();
}

// ---- backwards: the largest size that fits ----

function largest(size, fits) {
  const most = size.limit || 1 << 24, trial = new Map(state.values);
  const good = (value) => { trial.set(size.name, value); return fits(trial); };
  if (!good(1)) return 0;
  if (good(most)) return most;
  let low = 1, high = most;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (good(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// All weights are in memory, tables of which a run reads some rows too.
const allWeightBytes = data.modules.reduce((sum, module) => sum + module.weights.reduce((n, w) => n + w.bytes, 0), 0);

// Everything that a run holds: weights, caches, workspace, inputs and outputs. Beyond the last stop the workspace is
// taken for all buffers side by side, which is more than it is.
function bytesOfRun(sizes) {
  const each = program(), totals = totalsOf(each, sizes, state.threads, state.machine);
  let workspace = totals.workspace_bytes;
  if (!Number.isFinite(workspace)) {
    workspace = 0;
    for (const buffer of each.buffers) workspace += 4 * formula(buffer.elements)(sizes);
  }
  return Math.max(allWeightBytes, totals.weight_bytes) + totals.cache_bytes + workspace + totals.io_bytes;
}

// Between stops, and beyond the last one, only a bound of the workspace is known.
function isExactBehind(size, value) {
  const trial = new Map(state.values).set(size.name, value + 1);
  return totalsOf(program(), trial, state.threads, state.machine).exact;
}

function largestText(size, value, isOfBytes) {
  if (!value) return `${size.name} does not fit`;
  if (value === (size.limit || 1 << 24)) return `${size.name} ${value}${size.limit ? ' (its limit)' : ' and more'}`;
  return `${size.name} ${value}${isOfBytes && !isExactBehind(size, value) ? ' or more' : ''}`;
}

function showLargest() {
  const bytes = Number(document.getElementById('most-bytes').value);
  const ms = Number(document.getElementById('most-ms').value);
  const rows = [
    ['largest-bytes', (sizes) => bytesOfRun(sizes) <= bytes * 1e6, bytes > 0],
    ['largest-ms', (sizes) => totalsOf(program(), sizes, state.threads, state.machine).roofline_seconds <= ms * 1e-3,
     ms > 0]];
  for (const [id, fits, wanted] of rows) {
    const texts = wanted ? program().sizes.map((size) => largestText(size, largest(size, fits), id === 'largest-bytes'))
      : [];
    document.getElementById(id).textContent = texts.length ? '→ ' + texts.join(', or ') : '';
  }
}

// ---- the controls ----

function numberInput(attributes, value, change) {
  const input = el('input', Object.assign({ type: 'number', step: 'any' }, attributes));
  input.value = String(value);
  for (const event of ['input', 'change'])
    input.addEventListener(event, () => {
      const number = Number(input.value);
      if (input.value !== '' && number >= 0 && number !== input.last) change(number);
      input.last = number;
    });
  return input;
}

function sizeControl(size) {
  const stops = size.stops, nearest = (value) => Math.max(0, stops.filter((stop) => stop <= value).length - 1);
  const slider = el('input', { type: 'range', min: 0, max: stops.length - 1, step: 1,
                               'aria-label': size.name + ', by stops' });
  const set = (value) => {
    state.values.set(size.name, value);
    slider.value = String(nearest(value));
    sizesChanged();
    rememberSizes();
  };
  const input = numberInput({ 'data-size': size.name, min: 1, max: size.limit, step: 1 },
    state.values.get(size.name), (value) => set(Math.floor(value)));
  slider.value = String(nearest(state.values.get(size.name)));
  slider.addEventListener('input', () => {
    input.value = String(stops[Number(slider.value)]);
    set(stops[Number(slider.value)]);
  });
  return el('label', { class: 'size' }, el('span', { class: 'name' }, size.name), input, slider);
}

// Twelve digits are hard to read: the name says them in short.
function machineControl(name, title) {
  const short = (value) => `${title}: ${scaled(value, ['', 'k', 'M', 'G', 'T', 'P'], 1000)}`;
  const label = el('span', { class: 'name' }, short(state.machine.get(name)));
  const input = numberInput({ 'data-machine': name, min: 1 }, state.machine.get(name), (value) => {
    if (value > 0) state.machine.set(name, value);
    label.textContent = short(state.machine.get(name));
    sizesChanged();
    rememberSizes();
  });
  return el('label', { class: 'figure' }, label, input);
}

// In a narrow window the controls are folded, under a line that says what they hold.
const narrow = window.matchMedia('(max-width: 480px)');
const folding = { open: !narrow.matches };
narrow.addEventListener('change', () => {
  folding.open = !narrow.matches;
  const all = document.querySelector('#sizes > details');
  if (all) all.open = folding.open;
});

function foldedText() {
  const sizes = program().sizes.map((size) => `${size.name} ${state.values.get(size.name)}`);
  const value = (name) => document.querySelector(`[data-total=${name}]`).textContent;
  const times = runsMeasured.length ? `, measured ${value('measured_seconds')}` : '';
  return `${[...sizes, `${state.threads} thread${state.threads > 1 ? 's' : ''}`].join(', ')}: ` +
    `at best ${value('roofline_seconds')}${times}, workspace ${value('workspace_bytes')}`;
}

// What a run leaves out is counted all the same: how much it is depends on the inputs.
function leftOut() {
  const has = (name) => data.fusions.some((fusion) => fusion.done && fusion.fusion === name &&
    fusion.program === state.program);
  const says = has('experts') ? ['FLOP, weights read and times count every expert for all rows; a run computes an ' +
    'expert for the rows that chose it.'] : has('live-rows') ? ['FLOP and times count all rows; a run leaves out ' +
    'those that a mask takes out, such as padding.'] : [];
  return says.map((text) => el('p', { class: 'quiet left-out' }, text));
}

function showSizes() {
  const place = clear(document.getElementById('sizes'));
  const threads = numberInput({ 'data-size': 'threads', min: 1, max: 1024, step: 1 }, state.threads, (value) => {
    state.threads = Math.max(1, Math.floor(value));
    sizesChanged();
    rememberSizes();
  });
  const controls = el('div', { class: 'controls' }, ...program().sizes.map(sizeControl),
    el('label', { class: 'figure' }, el('span', { class: 'name' }, 'threads'), threads),
    machineControl('flop_per_second', 'FLOP/s'), machineControl('int8_flop_per_second', 'int8 FLOP/s'),
    machineControl('bytes_per_second', 'bytes/s'));
  const totals = el('dl', { class: 'totals' }, ...TOTALS.map(([name, title]) =>
    el('div', {}, el('dt', {}, title), el('dd', { 'data-total': name, 'data-value': '' }))));
  const most = (id, title, unit, out) => el('label', { class: 'most' }, title + ' ',
    Object.assign(numberInput({ id, min: 0 }, '', showLargest)), ' ' + unit + ' ', el('output', { id: out }));
  const all = el('details', { open: folding.open ? '' : null }, el('summary', { id: 'folded' }), controls, totals,
    ...leftOut(), el('div', { class: 'backwards' }, most('most-bytes', 'what fits into at most', 'MB', 'largest-bytes'),
      most('most-ms', 'what takes at most', 'ms', 'largest-ms')));
  all.addEventListener('toggle', () => { folding.open = all.open; });
  place.append(all);
  showTotals();
}
