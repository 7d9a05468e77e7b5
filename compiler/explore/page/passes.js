// What each pass changed: equal changes of repeated modules are one entry.

const passFilter = { text: '', all: false, chosen: null }; // the group that was clicked last

// What the records of the pass say of these modules: why it did so.
function reasonsOf(pass, group) {
  const fusions = data.fusions.filter((fusion) => fusion.program === pass.program && fusion.pass === pass.name &&
    fusion.done && fusion.modules.some((module) => group.modules.includes(module)));
  return [...new Set(fusions.map((fusion) => fusion.reason))];
}

// Whether a change belongs to what is selected. A click on a change selects its module, but marks it alone.
function isOfSelection(pass, group) {
  const [kind, a] = selection.thing ? numbersOf(selection.thing) : [], p = pass.program;
  if (kind === undefined) return false;
  if (kind === 'module')
    return passFilter.chosen ? passFilter.chosen === group : group.modules.some((module) => isWithin(module, a));
  if (kind === 'line') return group.lines.some((place) => lineThing(place) === selection.thing);
  if (kind === 'fusion') return data.fusions[a].program === p && data.fusions[a].pass === pass.name &&
    data.fusions[a].modules.some((module) => group.modules.includes(module));
  return group.came.some((n) => selection.related.has(`op:${p}.${n}`)) ||
    group.went.some((n) => selection.related.has(`op:${p}.${opOfPrimitive.get(`${p}.${n}`)}`));
}

// Of long lists equal lines are one, with how many there are.
const MOST_LINES = 12;
function changeLines(texts, sign) {
  const times = new Map();
  texts.forEach((text, n) => times.set(texts.length > MOST_LINES ? text : n, (times.get(text) || 0) + 1));
  return [...times].map(([key, n]) => el('div', { class: `change ${sign === '-' ? 'went' : 'came'}` },
    `${sign} ${typeof key === 'number' ? texts[key] : key}${n > 1 ? ` (× ${n})` : ''}`));
}

// What it changed is marked on the map: after the passes if anything of what came is still there.
function onTheMap(pass, group) {
  if (!group.went.length && !group.came.length) return '';
  const button = el('button', { type: 'button', class: 'link', 'data-map-of': pass.name }, 'on the map');
  button.addEventListener('click', (event) => {
    event.stopPropagation();
    passFilter.chosen = group;
    mapChoice.change = changeOnMap(pass, group);
    mapChoice.level = group.came.length ? 'fused' : 'primitive';
    go({ view: 'map', thing: `module:${group.modules[0]}` });
  });
  return button;
}

function passGroup(pass, group) {
  const place = ownPlace(group.lines);
  const where = place ? el('button', { type: 'button', class: 'link', 'data-thing': lineThing(place) },
    `${fileName(place[0])}:${place[1]}`) : '';
  const thing = `module:${group.modules[0]}`;
  const node = el('div', { class: 'group', tabindex: '0', role: 'option', 'aria-selected': 'false' },
    el('p', { class: 'where' }, el('strong', {}, group.module || data.model),
      group.times > 1 ? ` × ${group.times} ` : ' ', where, ' ', onTheMap(pass, group)),
    ...reasonsOf(pass, group).map((reason) => el('p', { class: 'where quiet' }, reason)),
    ...changeLines(group.before, '-'), ...changeLines(group.after, '+'));
  const pick = (event) => {
    if (event.target.closest('button') || (event.type === 'keydown' && event.key !== 'Enter')) return;
    passFilter.chosen = group;
    if (selection.thing === thing) markGroups();
    else choose(thing);
  };
  node.addEventListener('click', pick);
  node.addEventListener('keydown', pick);
  shownGroups.push({ node, pass, group });
  return node;
}

let shownGroups = [];
function markGroups() {
  const chosen = passFilter.chosen;
  if (!chosen || selection.thing !== `module:${chosen.modules[0]}`) passFilter.chosen = null;
  for (const { node, pass, group } of shownGroups) {
    node.setAttribute('aria-selected', isOfSelection(pass, group) ? 'true' : 'false');
    node.classList.toggle('chosen', group === passFilter.chosen);
  }
}

function passEntry(pass) {
  const title = `${pass.name}${pass.changed ? '' : ' (unchanged)'}`;
  const sum = pass.groups.reduce((total, group) => total + group.times, 0);
  if (!pass.groups.length)
    return el('details', { class: 'pass' }, el('summary', {}, title),
      el('p', { class: 'quiet' }, pass.changed ? 'Operations changed in place: attributes, expressions or inputs.'
          : 'Nothing to see.'));
  return el('details', { class: 'pass', open: '' },
    el('summary', {},
      `${title}: ${pass.groups.length} kind${pass.groups.length > 1 ? 's' : ''} of change, ${sum} in all, ` +
      `${pass.delta > 0 ? '+' : ''}${pass.delta} operations`),
    el('div', { role: 'listbox', 'aria-label': `changes of ${pass.name}` },
      ...pass.groups.map((group) => passGroup(pass, group))));
}

function passMatches(pass) {
  if (!passFilter.text) return true;
  return JSON.stringify([pass.name, pass.groups.map((g) => [g.module, g.before, g.after])]).toLowerCase()
    .includes(passFilter.text.toLowerCase());
}

function showPasses(list) {
  const passes = data.passes.filter((pass) => pass.program === state.program && (passFilter.all || pass.changed))
    .filter(passMatches);
  shownGroups = [];
  clear(list).append(...passes.map(passEntry));
  if (!passes.length) list.append(el('p', { class: 'quiet' }, 'No pass changed anything here.'));
  markSelection(list);
  markGroups();
}

function fusionTable() {
  const rows = data.fusions.map((fusion, n) => ({ fusion, n })).filter(({ fusion }) =>
      fusion.program === state.program);
  return el('table', { role: 'grid', 'aria-label': 'fusions' },
    el('thead', {}, el('tr', {}, ...['fusion', '', 'line', 'module', 'reason'].map((title) => el('th',
        { scope: 'col' }, title)))),
    el('tbody', {}, ...rows.map(({ fusion, n }) => el('tr', { 'data-thing': `fusion:${n}`, 'data-done': fusion.done
        ? '1' : '0',
      tabindex: '0', 'aria-selected': selection.related.has(`fusion:${n}`) ? 'true' : 'false' },
      el('td', { class: 'name' }, fusion.fusion), el('td', { class: fusion.done ? 'good' : 'bad' }, fusion.done
          ? '✓ done' : '✗ refused'),
      el('td', { class: 'name' }, fusion.file === null ? '' : `${fileName(fusion.file)}:${fusion.line}`),
      el('td', { class: 'name' }, modulePath(fusion.module) + (fusion.times > 1 ? ` × ${fusion.times}` : '')),
      el('td', { class: 'reason' }, fusion.reason)))));
}

function viewPasses(section) {
  const fusions = el('div', { class: 'scroll short', tabindex: '0', role: 'group', 'aria-label': 'table of fusions' });
  const list = el('div', {}), filter = el('input', { type: 'search', 'aria-label': 'search in passes' });
  const all = el('input', { type: 'checkbox' });
  filter.addEventListener('input', () => {
    passFilter.text = filter.value;
    showPasses(list);
  });
  all.addEventListener('change', () => {
    passFilter.all = all.checked;
    showPasses(list);
  });
  section.append(el('h3', {}, 'fusions'), fusions, el('h3', {}, 'passes'),
    el('p', { class: 'bar-of-view' }, el('label', {}, 'search ', filter), el('label', {}, all,
        ' unchanged ones too')), list);
  whenSelected(markGroups);
  return () => {
    clear(fusions).append(fusionTable());
    showPasses(list);
  };
}
