// The steps of a run: a table that can be sorted and grouped, and each step under the two lines of the machine.

const sorting = { key: 'number', down: false, group: 'none', open: new Set() };

const isComputing = (work) => work.computing >= work.reading;

function bound(step, work) {
  if (step.prepare) return 'when sizes change';
  if (!work.seconds) return 'no product or attention: time at best counts these alone';
  return isComputing(work) ? 'bound by arithmetic' : 'bound by memory';
}

// How near a step is to the roofline: the time at best of that measured.
function roofShare(row) {
  return row.measured && row.work.seconds ? row.work.seconds / row.measured : undefined;
}
const roofText = (share) => (share === undefined ? '–' : showShare(share));

const COLUMNS = [
  ['number', '#', (row) => row.number], ['title', 'step', (row) => row.title],
  ['line', 'line', (row) => row.place], ['flop', 'FLOP', (row) => row.work.flop],
  ['weight', 'weights', (row) => row.step.weight_bytes], ['moved', 'moved', (row) => row.moved],
  ['seconds', 'at best', (row) => row.work.seconds], ['estimate', 'estimate', (row) => row.estimate],
  ...(runsMeasured.length ? [['measured', 'measured', (row) => row.measured],
                             ['roof', 'of roofline', (row) => roofShare(row) ?? -1]] : []),
  ['share', runsMeasured.length ? 'share' : 'share of estimate', (row) => row.time]];

// `time` is what was measured, else the estimate.
function stepRows() {
  const each = program(), known = stepsAreMeasured(), rows = each.steps.map((step, number) => {
    const work = stepWork(step, state.values, state.machine), place = ownPlace(step.lines);
    const estimate = step.prepare ? 0 : formula(step.time_ns)(state.values) * 1e-9 / state.threads;
    const measured = known ? step.measured * 1e-9 : undefined;
    return { step, number, work, title: stepTitle(each, step), moved: formula(step.moved_bytes)(state.values),
             estimate, measured, time: measured === undefined ? estimate : measured,
             place: place ? `${fileName(place[0])}:${place[1]}` : '' };
  });
  const value = COLUMNS.find(([key]) => key === sorting.key)[2];
  rows.sort((a, b) => {
    const x = value(a), y = value(b), order = x < y ? -1 : x > y ? 1 : 0;
    return (sorting.down ? -order : order) || a.number - b.number;
  });
  return rows;
}

// The bar is the share of the time; where that is measured, a thin line below has the estimate in the same scale.
function shareCell(row, all) {
  const share = all ? row.time / all : 0, cell = el('td', { class: 'share' });
  const bar = (kind, time) => {
    const node = el('span', { class: kind });
    node.style.setProperty('width', `${Math.min(100, all ? 100 * time / all : 0)}%`);
    return node;
  };
  cell.append(bar('bar', row.time));
  if (row.measured !== undefined) cell.append(bar('expected', row.estimate));
  cell.append(el('span', { class: 'text' }, row.time ? showShare(share) : ''));
  return cell;
}

function stepRow(row, all) {
  const thing = `step:${state.program}.${row.number}`;
  return el('tr', { 'data-thing': thing, 'data-flop': String(row.work.flop), tabindex: '0',
                    'aria-selected': selection.related.has(thing) ? 'true' : 'false',
                    class: thing === selection.thing ? 'chosen' : null },
    el('td', {}, String(row.number)), el('td', { class: 'name title' }, ...breakable(row.title)),
    el('td', { class: 'name' }, row.place),
    el('td', { title: data.formulas[row.step.flop] }, row.work.flop ? showFlop(row.work.flop) : ''),
    el('td', {}, row.step.weight_bytes ? showBytes(row.step.weight_bytes) : ''),
    el('td', { title: data.formulas[row.step.moved_bytes] }, showBytes(row.moved)),
    el('td', { title: bound(row.step, row.work) },
      row.work.seconds ? `${showSeconds(row.work.seconds)} ${isComputing(row.work) ? '▲' : '▬'}` : '–'),
    el('td', { title: data.formulas[row.step.time_ns] + ' ns of one core' },
      row.step.prepare ? 'prepared' : showSeconds(row.estimate)),
    ...(runsMeasured.length ? [el('td', {}, row.measured === undefined ? '–' : showSeconds(row.measured)),
      el('td', {}, roofText(roofShare(row)))] : []),
    shareCell(row, all));
}

// A module with a number, such as a layer of a stack, with all that is in it; else the module itself.
function layerOf(module) {
  const path = data.modules[module].path.split('.'), at = path.findIndex((part) => /^\d+$/.test(part));
  const found = at < 0 ? undefined : moduleOfPath.get(path.slice(0, at + 1).join('.'));
  return found === undefined ? module : found;
}

function groupName(row) {
  if (sorting.group === 'op') return row.step.op;
  return modulePath(sorting.group === 'layer' ? layerOf(row.step.module) : row.step.module);
}

// Groups are closed but for those that were opened and that of the selection.
function groupBody(name, members, all, table) {
  const sum = (of) => members.reduce((total, row) => total + (of(row) || 0), 0), time = sum((row) => row.time);
  const isOpen = sorting.open.has(name) ||
    members.some((row) => selection.thing === `step:${state.program}.${row.number}`);
  const button = el('button', { type: 'button', class: 'link', 'aria-expanded': isOpen ? 'true' : 'false' },
    `${isOpen ? '▾' : '▸'} ${name} (${members.length})`);
  button.addEventListener('click', () => {
    if (isOpen) sorting.open.delete(name);
    else sorting.open.add(name);
    showStepTable(table);
  });
  const rows = members.map((row) => stepRow(row, all));
  if (!isOpen) for (const row of rows) row.hidden = true;
  const cell = (value, show) => el('td', {}, value ? show(value) : '');
  return { time, body: el('tbody', {}, el('tr', { class: 'group' },
    el('th', { colspan: '3', scope: 'rowgroup' }, button), cell(sum((row) => row.work.flop), showFlop),
    cell(sum((row) => row.step.weight_bytes), showBytes), cell(sum((row) => row.moved), showBytes),
    cell(sum((row) => row.work.seconds), showSeconds), cell(sum((row) => row.estimate), showSeconds),
    ...(runsMeasured.length
      ? [el('td', {}, stepsAreMeasured() ? showSeconds(sum((row) => row.measured)) : '–'), el('td')] : []),
    shareCell({ time, estimate: sum((row) => row.estimate), measured: stepsAreMeasured() ? time : undefined }, all)),
    ...rows) };
}

function bodies(rows, all, table) {
  if (sorting.group === 'none') return [el('tbody', {}, ...rows.map((row) => stepRow(row, all)))];
  const groups = new Map();
  rows.forEach((row) => push(groups, groupName(row), row));
  const made = [...groups].map(([name, members]) => groupBody(name, members, all, table));
  const isTime = ['seconds', 'estimate', 'measured', 'share'].includes(sorting.key);
  if (isTime) made.sort((a, b) => (sorting.down ? b.time - a.time : a.time - b.time));
  return made.map(({ body }) => body);
}

function showStepTable(table) {
  const rows = stepRows(), all = rows.reduce((total, row) => total + row.time, 0);
  clear(table).append(el('thead', {}, el('tr', {}, ...COLUMNS.map(([key, title]) => {
    const order = sorting.key !== key ? 'none' : sorting.down ? 'descending' : 'ascending';
    const arrow = order === 'none' ? '' : sorting.down ? ' ↓' : ' ↑';
    const button = el('button', { type: 'button', class: 'link' }, title + arrow);
    button.addEventListener('click', () => {
      sorting.down = sorting.key === key ? !sorting.down : !['number', 'title', 'line'].includes(key);
      sorting.key = key;
      showStepTable(table);
    });
    return el('th', { scope: 'col', 'aria-sort': order }, button);
  }))), ...bodies(rows, all, table));
}

// ---- the roofline ----

const CHART = { width: 640, height: 300, left: 64, right: 16, top: 16, bottom: 40 };

function axisTicks(low, high) {
  const ticks = [];
  for (let power = Math.ceil(low); power <= high; power++) ticks.push(power);
  return ticks;
}

// Where things are in the chart: FLOP a byte to the right, FLOP a second upwards, both by powers of ten.
function rooflineScale(points, peak, speed) {
  const logs = points.map((point) => Math.log10(point.x)).filter((value) => value < 7);
  const low = Math.floor(Math.min(-1, ...logs)), high = Math.ceil(Math.max(2, Math.log10(peak / speed), ...logs) + 0.2);
  const top = Math.log10(peak) + 0.3, bottom = Math.log10(speed) + low;
  const { width, height, left, right } = CHART;
  const within = (value) => Math.min(high, Math.max(low, value)), tall = height - CHART.top - CHART.bottom;
  return { low, high, top, bottom,
           x: (value) => left + (within(value) - low) / (high - low) * (width - left - right),
           y: (value) => height - CHART.bottom - (value - bottom) / (top - bottom) * tall };
}

function rooflineGrid(chart, { low, high, top, bottom, x, y }) {
  const { width, height, left, right } = CHART, floor = height - CHART.bottom;
  for (const tick of axisTicks(low, high))
    chart.append(svg('path', { class: 'grid', d: `M${x(tick)} ${CHART.top}V${floor}` }),
      svg('text', { x: x(tick), y: floor + 16, 'text-anchor': 'middle' }, powerText(tick)));
  for (const tick of axisTicks(bottom, top))
    chart.append(svg('path', { class: 'grid', d: `M${left} ${y(tick)}H${width - right}` }),
      svg('text', { x: left - 6, y: y(tick) + 4, 'text-anchor': 'end' },
        scaled(10 ** tick, ['', 'k', 'M', 'G', 'T', 'P'], 1000)));
  chart.append(svg('text', { x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle' },
    'FLOP for each byte of weights and caches'), svg('text', { x: 4, y: 12 }, 'FLOP/s'));
}

// Points lie on the roof: that is what `at best` means; their size says how much of the time they are.
function rooflinePoint(row, intensity, all, { x, y }) {
  const thing = `step:${state.program}.${row.number}`, rate = row.work.flop / row.work.seconds;
  return svg('circle', { class: 'point', cx: x(Math.log10(intensity)), cy: y(Math.log10(rate)),
                         r: 3 + 12 * Math.sqrt(row.work.seconds / all), 'data-thing': thing, tabindex: '0',
                         role: 'option', 'aria-selected': selection.related.has(thing) ? 'true' : 'false',
                         'aria-label': row.title },
             svg('title', {}, `${row.title}: ${showSeconds(row.work.seconds)}, ${bound(row.step, row.work)}`));
}

function showRoofline(place) {
  const rows = stepRows().filter((row) => row.work.flop > 0);
  clear(place);
  if (!rows.length) {
    place.append(el('p', { class: 'quiet' }, 'No step is a product.'));
    return;
  }
  const flops = state.machine.get('flop_per_second'), speed = state.machine.get('bytes_per_second');
  const whole = rows.some((row) => row.step.whole) ? state.machine.get('int8_flop_per_second') : flops;
  const read = (row) => row.step.weight_bytes + row.work.cache;
  const points = rows.map((row) => ({ row, x: Math.max(1e-2, row.work.flop / Math.max(1, read(row))) }));
  const scale = rooflineScale(points, Math.max(flops, whole), speed), { low, high, bottom, x, y } = scale;
  const roof = (rate) =>
    `M${x(low)} ${y(bottom)}L${x(Math.log10(rate / speed))} ${y(Math.log10(rate))}L${x(high)} ${y(Math.log10(rate))}`;
  const chart = svg('svg', { viewBox: `0 0 ${CHART.width} ${CHART.height}`, class: 'chart', role: 'listbox',
                             'aria-label': 'roofline: arithmetic of each step for each byte that it reads' });
  rooflineGrid(chart, scale);
  chart.append(svg('path', { class: 'roof', d: roof(flops) }));
  if (whole !== flops) chart.append(svg('path', { class: 'roof whole', d: roof(whole) }));
  const all = rows.reduce((total, row) => total + row.work.seconds, 0);
  for (const point of points) chart.append(rooflinePoint(point.row, point.x, all, scale));
  place.append(chart);
}

function powerText(power) {
  return power >= 0 && power < 4 ? String(10 ** power) : power === -1 ? '0.1' : power === -2 ? '0.01' : `1e${power}`;
}

// ---- the view ----

function viewSteps(section) {
  const table = el('table', { class: 'steps', role: 'grid', 'aria-label': 'steps' });
  const chart = el('div', { class: 'chart-place' }), curves = el('div', { class: 'curves' });
  const spans = el('div', { class: 'chart-place' });
  const verdict = el('p', { class: 'verdict' });
  const group = el('select', { 'aria-label': 'group by' }, el('option', { value: 'none' }, 'each step'),
    el('option', { value: 'layer' }, 'by layer'), el('option', { value: 'module' }, 'by module'),
    el('option', { value: 'op' }, 'by operation'));
  group.addEventListener('change', () => {
    sorting.group = group.value;
    showStepTable(table);
  });
  section.append(el('p', { class: 'bar-of-view' }, el('label', {}, 'group ', group),
    el('span', { class: 'quiet' }, '▲ bound by arithmetic, ▬ by memory, – no product: “at best” is of ' +
      'products and attention alone. “Estimate” is what the compiler expects, ' +
      'by which the runtime chooses threads; “share” is of ' + (runsMeasured.length ? 'what was measured, where it ' +
      'was, with the estimate as a thin line.' : 'it.'))), verdict,
    el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'table of steps' }, table),
    el('details', { class: 'roofline', open: '' }, el('summary', {}, 'a run, by module'), spans),
    el('details', { class: 'roofline', open: '' }, el('summary', {}, 'roofline'), chart),
    el('details', { class: 'roofline', open: '' }, el('summary', {}, 'time over a size'), curves));
  return () => {
    showVerdict(verdict);
    clear(curves).append(...program().sizes.filter((size) => size.stops.length > 1).map(timeFigure));
    showStepTable(table);
    showRoofline(chart);
    showSpans(spans, stepRows());
  };
}
