// Another model beside this one: the totals of both, and what differs, equal changes of repeated modules as one entry.

function compareTotals(table) {
  const each = program(), other = data.compare.programs.find((one) => one.name === each.name);
  clear(table);
  if (!other) {
    table.append(el('caption', {}, `The other model has no program “${each.name}”.`));
    return;
  }
  const sizes = new Map(state.values);
  for (const size of other.sizes) if (!sizes.has(size.name)) sizes.set(size.name, size.default);
  const mine = totalsOf(each, sizes, state.threads, state.machine);
  const theirs = totalsOf(other, sizes, state.threads, state.machine, data.compare.programs);
  const rows = TOTALS.map(([name, title, show]) => {
    const [a, b] = [mine[name], theirs[name]], ratio = a > 0 && Number.isFinite(b) ? b / a : NaN;
    const cell = (value, totals) => el('td', { 'data-value': Number.isFinite(value) ? String(value) : '' },
      !Number.isFinite(value) ? (name === 'measured_seconds' ? 'not with these sizes' : 'not known')
        : (name === 'workspace_bytes' && !totals.exact ? 'at most ' : '') + show(value));
    return el('tr', { 'data-compared': name }, el('th', { scope: 'row', class: 'name' }, title),
      cell(a, mine), cell(b, theirs),
      el('td', {}, a === b ? 'the same' : Number.isFinite(ratio) ? `× ${ratio.toFixed(ratio < 0.1 ? 4 : 2)}` : ''));
  });
  table.append(el('thead', {}, el('tr', {}, ...['', 'this', 'the other', 'the other / this'].map((title) =>
    el('th', { scope: 'col' }, title)))), el('tbody', {}, ...rows));
}

const KIND_TITLES = { added: 'in the other alone', removed: 'in this one alone', changed: 'changed' };

// Kernels that one of the two has alone.
function compareKernels() {
  const { both, here, there } = data.compare.kernels;
  const list = (title, items) => (items.length ? [el('h3', {}, title), el('ul', { class: 'specs' }, ...items)] : []);
  return [el('p', { class: 'quiet' }, `${both} kernels both have.`),
    ...list(`${here.length} this one has alone`, here.map((n) => el('li', { 'data-thing': `kernel:${n}`, tabindex: '0',
      'aria-selected': 'false' }, `${data.kernels[n].family}: ${specText(data.kernels[n].spec)}`))),
    ...list(`${there.length} the other has alone`, there.map((text) => el('li', {}, specText(text))))];
}

function compareGroup(group) {
  const [mine, theirs] = group.weight_bytes;
  const facts = mine !== theirs ? [`weights read ${showBytes(mine)} → ${showBytes(theirs)}`] : [];
  const times = group.nanoseconds; // of a run with the sizes that were measured
  if (times) facts.push(`measured ${showSeconds(times[0] * 1e-9)} → ${showSeconds(times[1] * 1e-9)}`);
  return el('div', { class: 'group', 'data-thing': `module:${group.modules[0]}`, 'data-kind': group.kind, tabindex: '0',
                     role: 'option', 'aria-selected': 'false' },
    el('p', { class: 'where' }, el('strong', {}, group.module || data.model),
      `${group.times > 1 ? ` × ${group.times}` : ''}: ${KIND_TITLES[group.kind]} `,
      el('span', { class: 'quiet' }, facts.join(', '))),
    ...changeLines(group.before, '-'), ...changeLines(group.after, '+'));
}

function viewCompare(section) {
  const { groups, command } = data.compare, table = el('table', { class: 'compared', 'aria-label': 'totals of both' });
  section.append(el('p', {}, 'This one: ', el('code', {}, data.command)),
    el('p', {}, 'The other: ', el('code', {}, command)),
    ...(runsMeasured.length ? [el('p', { class: 'quiet' }, 'Both were run. The time of a difference is that of the ' +
      'steps of its modules, with the sizes that the page began with.')] : []),
    el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'table of totals' }, table),
    el('h3', {}, groups.length ? `${groups.length} difference${groups.length > 1 ? 's' : ''}` : 'No difference'));
  if (data.compare.of_steps)
    section.append(el('p', { class: 'quiet' }, groups.length
      ? 'Both are the same as they were written. Their steps differ: − is this one, + the other.'
      : 'Both are the same as they were written, and so are their steps.'));
  else
    section.append(el('p', { class: 'quiet' }, 'Operations as they were written: − is this one, + the other.'));
  const list = { class: 'differences', role: 'listbox', 'aria-label': 'differences' };
  // What changes most of the weights comes first.
  const moved = (group) => Math.abs(group.weight_bytes[0] - group.weight_bytes[1]);
  section.append(el('div', list, ...[...groups].sort((a, b) => moved(b) - moved(a)).map(compareGroup)));
  if (data.compare.gradients.length)
    section.append(el('h3', {}, 'gradients'), el('div', list, ...data.compare.gradients.map(compareGroup)));
  section.append(el('details', {}, el('summary', {}, 'kernels'), ...compareKernels()));
  return () => compareTotals(table);
}
