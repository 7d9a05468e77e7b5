// The time of a run over one size, the other sizes as they are: the estimate by operation, one band on the other, the
// time at best as a line, and runs that were measured as points.

const OVER = { width: 640, height: 280, left: 66, right: 150, top: 14, bottom: 34 };
const MOST_BANDS = 6;

// For each stop the estimate by operation, and the time at best.
function timesOver(each, size) {
  return size.stops.map((stop) => {
    const sizes = new Map(state.values).set(size.name, stop), byOp = new Map();
    let best = 0;
    for (const step of each.steps) {
      best += stepWork(step, sizes, state.machine).seconds;
      if (!step.prepare)
        byOp.set(step.op, (byOp.get(step.op) || 0) + formula(step.time_ns)(sizes) * 1e-9 / state.threads);
    }
    return { stop, sizes, byOp, best };
  });
}

// The operations that take most at the last stop have a band each, the others one together.
function bandsOf(times) {
  const last = times[times.length - 1].byOp, names = [...last.keys()].sort((a, b) => last.get(b) - last.get(a));
  const own = names.slice(0, names.length > MOST_BANDS ? MOST_BANDS - 1 : MOST_BANDS), rest = names.slice(own.length);
  const bands = own.map((name) => ({ name, of: (byOp) => byOp.get(name) || 0 }));
  if (rest.length)
    bands.push({ name: `${rest.length} others`,
                 of: (byOp) => rest.reduce((sum, name) => sum + (byOp.get(name) || 0), 0) });
  return bands;
}

// Names stand beside their bands, moved apart where these are thin, and within the chart.
function bandLabels(chart, places, x) {
  const APART = 13, ys = [];
  places.forEach(({ middle }, i) => ys.push(Math.min(middle, i ? ys[i - 1] - APART : Infinity)));
  for (let i = ys.length - 1, least = OVER.top; i >= 0; i--, least += APART) ys[i] = Math.max(ys[i], least);
  places.forEach(({ name, kind }, i) => {
    chart.append(svg('rect', { class: kind, x: x + 6, y: ys[i] - 5, width: 9, height: 9 }),
      svg('text', { x: x + 19, y: ys[i] + 4 }, name));
  });
}

function timeFigure(size) {
  const each = program(), times = timesOver(each, size), bands = bandsOf(times);
  const { width, height, left, right, top, bottom } = OVER;
  const runs = runsMeasured.filter((run) => state.threads === data.machine.threads && each.sizes.every((other, i) =>
    other === size || run.sizes[i] === state.values.get(other.name)) && each === data.programs[0])
    .map((run) => ({ stop: run.sizes[each.sizes.indexOf(size)], seconds: run.median_seconds, n: run.runs }));
  const sumOf = (time) => bands.reduce((sum, band) => sum + band.of(time.byOp), 0);
  const most = Math.max(1e-12, ...times.map((time) => Math.max(sumOf(time), time.best)),
    ...runs.map((run) => run.seconds));
  const last = size.stops[size.stops.length - 1], x = (stop) => left + stop / last * (width - left - right);
  const y = (seconds) => height - bottom - seconds / most * (height - top - bottom);
  const chart = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart', role: 'img',
                             'aria-label': `time over the size ${size.name}` });
  for (let part = 0; part <= 4; part++)
    chart.append(svg('path', { class: 'grid', d: `M${left} ${y(most * part / 4)}H${width - right}` }),
      svg('text', { x: left - 6, y: y(most * part / 4) + 4, 'text-anchor': 'end' }, showSeconds(most * part / 4)));
  const base = times.map(() => 0), labels = [];
  bands.forEach((band, n) => {
    const under = [...base];
    times.forEach((time, i) => { base[i] += band.of(time.byOp); });
    const edge = (values, i) => `${x(times[i].stop)} ${y(values[i])}`, order = times.map((_, i) => i);
    chart.append(svg('path', { class: `band band-${n}`, d: `M${order.map((i) => edge(base, i)).join('L')}L` +
      `${order.reverse().map((i) => edge(under, i)).join('L')}Z` },
      svg('title', {}, `${band.name}: ${showSeconds(band.of(times[times.length - 1].byOp))} at ${last}`)));
    const end = times.length - 1;
    labels.push({ name: band.name, middle: (y(base[end]) + y(under[end])) / 2, kind: `band band-${n}` });
  });
  const best = times.map((time) => `${x(time.stop)} ${y(time.best)}`).join('L');
  chart.append(svg('path', { class: 'roof', d: `M${best}` }),
    svg('path', { class: 'peak', d: `M${x(state.values.get(size.name))} ${top}V${height - bottom}` }));
  for (const run of runs)
    chart.append(svg('circle', { class: 'measured', cx: x(run.stop), cy: y(run.seconds), r: 4 },
      svg('title', {}, `measured at ${run.stop}: ${showSeconds(run.seconds)}, median of ${run.n} runs`)));
  bandLabels(chart, labels, width - right);
  chart.append(svg('text', { x: width - right, y: height - 8, 'text-anchor': 'end' }, `${size.name} = ${last}`),
    svg('text', { x: left, y: height - 8 }, '0'));
  return el('figure', {}, el('figcaption', {}, `time over the size ${size.name}: bands are the ` +
    `estimate by operation, the line is the time at best${runs.length ? ', points are measured runs' : ''}`), chart);
}

// The time at best, the estimate and what was measured, in one line.
function showVerdict(place) {
  const run = measuredRun(program(), state.values, state.threads);
  clear(place);
  place.hidden = !runsMeasured.length;
  if (!runsMeasured.length) return;
  const totals = totalsOf(program(), state.values, state.threads, state.machine);
  const estimate = program().steps.reduce((sum, step) =>
    sum + (step.prepare ? 0 : formula(step.time_ns)(state.values) * 1e-9 / state.threads), 0);
  const beside = (seconds) => (run ? ` (${(100 * seconds / run.median_seconds).toFixed(0)} % of measured)` : '');
  place.append(el('strong', {}, 'A run: '), `at best ${showSeconds(totals.roofline_seconds)}` +
    `${beside(totals.roofline_seconds)}, estimate ${showSeconds(estimate)}${beside(estimate)}, ` +
    (run ? `measured ${showSeconds(run.median_seconds)}, median of ${run.runs} runs; the fastest ` +
      `${showSeconds(run.least_seconds)}.` : 'not measured with these sizes and threads.') +
    (run && !stepsAreMeasured() ? ' Its steps were measured with the sizes that the page began with.' : ''));
}
