// The workspace as address against step, weights by module, and bytes as curves over a size.

// ---- placing, as runtime/context/workspace.c does it ----

const ALIGNMENT = 64;
const roundUp = (value) => Math.ceil(value / ALIGNMENT) * ALIGNMENT;

// Larger buffers first, each at the lowest offset at which it overlaps none that is live with it.
function placeBuffers(each, sizes) {
  const placed = each.buffers.map((buffer, number) => ({
    number, buffer, bytes: roundUp(formula(buffer.elements)(sizes) * (buffer.dtype === 'bool' ? 1 : 4)), offset: 0 }));
  placed.sort((a, b) => b.bytes - a.bytes || a.number - b.number);
  const together = (a, b) => a.persistent || b.persistent || (a.first <= b.last && b.first <= a.last);
  placed.forEach((one, i) => {
    for (let moved = true; moved;) {
      moved = false;
      for (let k = 0; k < i; k++) {
        const other = placed[k], end = other.offset + other.bytes;
        if (!together(one.buffer, other.buffer)) continue;
        if (one.offset >= end || one.offset + one.bytes <= other.offset) continue;
        one.offset = end;
        moved = true;
      }
    }
  });
  return placed;
}

// Bytes in use at each step; the most of them is the least that any placing needs.
function liveBytes(each, placed) {
  const live = new Array(each.steps.length).fill(0);
  for (const { buffer, bytes } of placed) {
    const first = buffer.persistent ? 0 : buffer.first, last = buffer.persistent ? live.length - 1 : buffer.last;
    for (let s = Math.max(0, first); s <= last && buffer.first >= 0; s++) live[s] += bytes;
  }
  return live;
}

// ---- the picture ----

const PLAN = { width: 960, height: 360, left: 70, right: 10, top: 22, bottom: 34 };

function memoryPicture(each, placed) {
  const total = placed.reduce((most, one) => Math.max(most, one.offset + one.bytes), 0), steps = each.steps.length;
  const { width, height, left, right, top, bottom } = PLAN;
  const x = (step) => left + step / Math.max(1, steps) * (width - left - right);
  const y = (byte) => height - bottom - byte / Math.max(1, total) * (height - top - bottom);
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart memory', role: 'listbox',
                               'aria-label': 'buffers: steps to the right, addresses upwards' });
  for (let part = 0; part <= 4; part++)
    picture.append(svg('path', { class: 'grid', d: `M${left} ${y(total * part / 4)}H${width - right}` }),
      svg('text', { x: left - 6, y: y(total * part / 4) + 4, 'text-anchor': 'end' }, showBytes(total * part / 4)));
  picture.append(svg('text', { x: left, y: height - 8 }, 'step 0'),
    svg('text', { x: width - right, y: height - 8, 'text-anchor': 'end' }, `step ${steps - 1}`));
  for (const { number, buffer, bytes, offset } of placed) {
    if (buffer.first < 0 || !bytes) continue;
    const first = buffer.persistent ? 0 : buffer.first, last = buffer.persistent ? steps - 1 : buffer.last;
    const thing = `buffer:${state.program}.${number}`,
        title = `${buffer.name} ${showBytes(bytes)}, steps ${first} to ${last}`;
    picture.append(svg('rect', { class: `buffer${buffer.persistent ? ' persistent' : ''}`, x: x(first), y: y(offset
        + bytes),
                                 width: Math.max(1, x(last + 1) - x(first)), height: Math.max(1,
                                     y(offset) - y(offset + bytes)),
                                 'data-thing': thing, tabindex: '0', role: 'option',
                                 'aria-selected': selection.related.has(thing) ? 'true' : 'false',
                                     'aria-label': title },
                       svg('title', {}, `${title}, ${modulePath(buffer.module)}`)));
  }
  const live = liveBytes(each, placed), peak = live.indexOf(Math.max(...live));
  if (live.length)
    picture.append(svg('path', { class: 'peak', d: `M${x(peak + 0.5)} ${top}V${height - bottom}` }),
      svg('text', { x: Math.min(x(peak + 0.5) + 4, width - 170), y: top - 6 },
          `peak: step ${peak}, ${showBytes(live[peak])}`));
  return { picture, total };
}

// What the looks of the picture mean; only those that are there.
function memoryLegend(each) {
  const key = (kind, ...what) => el('span', { class: 'key' },
    svg('svg', { width: 18, height: 12, 'aria-hidden': 'true' }, svg(...what)), kind);
  const rect = (kind, more) => ['rect', Object.assign({ class: kind, x: 1, y: 1, width: 16, height: 10 }, more)];
  const keys = [key('a buffer', ...rect('buffer')), key('selected', ...rect('buffer', { 'aria-selected': 'true' })),
    key('the step with most in use', 'path', { class: 'peak', d: 'M9 0V12' })];
  if (each.buffers.some((buffer) => buffer.persistent))
    keys.push(key('dashed: its memory is its own, in all steps and between runs', ...rect('buffer persistent')));
  return el('p', { class: 'legend quiet' }, ...keys);
}

// ---- curves ----

// Workspace, inputs and outputs, and caches over the stops of one size.
function memoryCurves(each, size) {
  const { width, height, left, right, top, bottom } = Object.assign({}, PLAN, { width: 640, height: 240, right: 170 });
  const lines = [['workspace', []], ['inputs and outputs', []], ['caches', []]];
  for (const stop of size.stops) {
    const sizes = new Map(state.values).set(size.name, stop);
    const totals = totalsOf(each, sizes, state.threads, state.machine);
    [totals.workspace_bytes, totals.io_bytes, totals.cache_bytes].forEach((bytes, i) => {
      if (Number.isFinite(bytes) && bytes > 0) lines[i][1].push([stop, bytes]);
    });
  }
  const most = Math.max(1, ...lines.flatMap(([, points]) => points.map(([, bytes]) => bytes)));
  const last = Math.max(...size.stops), x = (stop) => left + stop / last * (width - left - right);
  const y = (bytes) => height - bottom - bytes / most * (height - top - bottom);
  const chart = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart', role: 'img',
                             'aria-label': `bytes over the size ${size.name}` });
  for (let part = 0; part <= 4; part++)
    chart.append(svg('path', { class: 'grid', d: `M${left} ${y(most * part / 4)}H${width - right}` }),
      svg('text', { x: left - 6, y: y(most * part / 4) + 4, 'text-anchor': 'end' }, showBytes(most * part / 4)));
  const ends = [];
  lines.forEach(([name, points], i) => {
    if (!points.length) return;
    const [stop, bytes] = points[points.length - 1];
    chart.append(svg('path', { class: `curve curve-${i}`,
                               d: 'M' + points.map((point) => `${x(point[0])} ${y(point[1])}`).join('L') }));
    ends.push({ text: `${name} ${showBytes(bytes)}`, x: x(stop), y: y(bytes) });
  });
  let above = -Infinity;
  for (const end of ends.sort((a, b) => a.y - b.y)) {
    above = Math.max(end.y, above + 13);
    chart.append(svg('text', { x: width - right + 6, y: above + 4 }, end.text));
  }
  chart.append(svg('text', { x: width - right, y: height - 8, 'text-anchor': 'end' }, `${size.name} = ${last}`),
    svg('text', { x: left, y: height - 8 }, '0'));
  return chart;
}

// ---- weights ----

function weightsByModule() {
  const sums = data.modules.map((module) => module.weights.reduce((sum, weight) => sum + weight.bytes, 0));
  for (let m = data.modules.length - 1; m > 0; m--) sums[data.modules[m].parent] += sums[m];
  return sums;
}

function weightTable() {
  const sums = weightsByModule(), all = sums[0] || 1, depth = (m) => (m <= 0 ? 0 : 1 + depth(data.modules[m].parent));
  const rows = data.modules.map((module, m) => ({ m, bytes: sums[m] })).filter((row) => row.bytes && depth(row.m) <= 3);
  const bar = (share) => {
    const node = el('span', { class: 'bar' });
    node.style.setProperty('width', `${100 * share}%`);
    return node;
  };
  return el('table', { role: 'grid', 'aria-label': 'weights by module' },
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'module'), el('th', { scope: 'col' }, 'layer'),
      el('th', { scope: 'col' }, 'weights'), el('th', { scope: 'col' }, 'share'))),
    el('tbody', {}, ...rows.map(({ m, bytes }) => el('tr', { 'data-thing': `module:${m}`, tabindex: '0',
      'aria-selected': selection.related.has(`module:${m}`) ? 'true' : 'false' },
      el('td', { class: 'name' }, modulePath(m)), el('td', { class: 'name' }, data.modules[m].layer),
      el('td', {}, showBytes(bytes)), el('td', { class: 'share' }, bar(bytes / all), el('span', { class: 'text' },
          showShare(bytes / all)))))));
}

// ---- the view ----

function viewMemory(section) {
  const plan = el('div', { class: 'chart-place' }), curves = el('div', { class: 'curves' }),
    weights = el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'table of weights' });
  section.append(plan, curves, el('h3', {}, 'weights'), weights);
  weights.append(weightTable());
  return () => {
    const each = program(), placed = placeBuffers(each, state.values);
    const { picture, total } = memoryPicture(each, placed), workspace = workspaceOf(each, state.values, state.threads);
    const says = Number.isFinite(workspace.bytes)
      ? `the runtime reserves ${workspace.exact ? '' : 'at most '}${showBytes(workspace.bytes)} with ` +
        `${state.threads} thread` +
        `${state.threads > 1 ? 's, each with scratch of its own' : ', scratch included'}` : 'beyond the last stop';
    clear(plan).append(el('p', { 'data-placed': String(total) },
        `${each.buffers.length} buffers share ${showBytes(total)}; ${says}.`),
      ...placed.length ? [picture, memoryLegend(each)] : [el('p', { class: 'quiet' }, 'No buffer is needed.')]);
    clear(curves).append(...each.sizes.map((size) => el('figure', {},
      el('figcaption', {}, `bytes over the size ${size.name}`),
      memoryCurves(each, size))));
  };
}
