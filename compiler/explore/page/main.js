// The views as tabs, the address, keys, and the beginning.

const started = performance.now();
const VIEWS = [['source', 'Source', viewSource], ['map', 'Map', viewMap], ['steps', 'Steps', viewSteps],
  ['memory', 'Memory', viewMemory], ['code', 'Code', viewCode], ['passes', 'Passes', viewPasses]];
if (data.compare) VIEWS.push(['compare', 'Compare', viewCompare]);

const views = new Map(); // name -> { section, tab, refresh, stale }
let current = null;

function makeViews() {
  const tabs = document.getElementById('tabs'), place = document.getElementById('views');
  for (const [name, title] of VIEWS) {
    const section = el('section', { id: `view-${name}`, 'data-view': name, role: 'tabpanel', 'aria-label': title,
                                    hidden: '' });
    const tab = el('button', { type: 'button', role: 'tab', 'data-for': name, 'aria-controls': `view-${name}`,
                               'aria-selected': 'false', tabindex: '-1' }, title);
    tab.addEventListener('click', () => go({ view: name }));
    tabs.append(tab);
    place.append(section);
    views.set(name, { section, tab, refresh: null, stale: true });
  }
  tabs.addEventListener('keydown', (event) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    const names = VIEWS.map(([name]) => name), at = (names.indexOf(current) + step + names.length) % names.length;
    go({ view: names[at] });
    views.get(names[at]).tab.focus();
  });
}

// A view is made when it is first shown, and made anew when it is shown after sizes or program changed.
function showView(name) {
  current = views.has(name) ? name : VIEWS[0][0];
  for (const [each, view] of views) {
    const shown = each === current;
    view.section.hidden = !shown;
    view.tab.setAttribute('aria-selected', shown ? 'true' : 'false');
    view.tab.setAttribute('tabindex', shown ? '0' : '-1');
  }
  refreshView(views.get(current), VIEWS.find(([each]) => each === current)[2]);
  scrollToSelection();
}

function refreshView(view, make) {
  if (!view.refresh) view.refresh = make(view.section) || (() => {});
  if (view.stale) view.refresh();
  view.stale = false;
  markSelection(view.section);
  watchCuts(view.section);
}

// What is wider than its frame has a sign at the right edge until it is moved to its end.
const cuts = new ResizeObserver((entries) => {
  for (const { target } of entries) markCut(target.closest('.scrolls'));
});
function markCut(frame) {
  if (frame) frame.classList.toggle('cut', frame.scrollWidth - frame.clientWidth - frame.scrollLeft > 8);
}
function watchCuts(section) {
  for (const frame of section.querySelectorAll('.scroll, .lines, .asm, .chart-place, figure')) {
    if (frame.classList.contains('scrolls')) markCut(frame);
    else {
      frame.classList.add('scrolls');
      frame.addEventListener('scroll', () => markCut(frame), { passive: true });
      cuts.observe(frame);
    }
    for (const child of frame.children) cuts.observe(child);
  }
}

// Views that were shown stay right while they are hidden, so that what is selected there is there.
function refreshAll() {
  for (const [name, , make] of VIEWS) {
    const view = views.get(name);
    view.stale = true;
    if (view.refresh) refreshView(view, make);
  }
}

function scrollToSelection() {
  if (!selection.thing) return;
  const section = views.get(current).section;
  const node = (current === 'map' && section.querySelector('.box[aria-selected=true]:not(.open)')) ||
    section.querySelector('[data-thing].chosen') || section.querySelector('[data-thing][aria-selected=true]');
  if (!node) return;
  const file = node.closest('details');
  if (file) file.open = true;
  node.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

function showProgram(number) {
  state.program = number;
  document.getElementById('program').value = String(number);
  showSizes();
  refreshAll();
}

// ---- the address ----

function address(change) {
  const now = Object.assign({ view: current, program: state.program, thing: selection.thing }, change);
  const parts = [`view=${now.view}`, `p=${now.program}`];
  if (now.thing) parts.push(`sel=${now.thing}`);
  for (const size of data.programs[now.program].sizes)
    if (state.values.get(size.name) !== size.default)
      parts.push(`size.${encodeURIComponent(size.name)}=${state.values.get(size.name)}`);
  if (state.threads !== data.machine.threads) parts.push(`threads=${state.threads}`);
  for (const [name, value] of state.machine) if (value !== data.machine[name]) parts.push(`machine.${name}=${value}`);
  return '#' + parts.join('&');
}

let expected = null; // an address that this script has set, whose event is none

function go(change) {
  const next = address(change);
  if (next === location.hash) return restore(next);
  expected = next;
  location.hash = next;
  restore(next);
}
const choose = (thing) => go({ thing, program: ['op', 'step', 'buffer'].includes(numbersOf(thing)[0])
  ? numbersOf(thing)[1] : state.program });

// Sizes change often: they are kept in the address without an entry for each.
function rememberSizes() {
  try {
    history.replaceState(null, '', address({}));
  } catch (error) {
    expected = address({});
    location.replace(expected);
  }
}

function restore(hash) {
  const wanted = new Map(hash.slice(1).split('&').map((part) => {
    const equals = part.indexOf('=');
    return [decode(part.slice(0, equals)), decode(part.slice(equals + 1))];
  }));
  let changed = false;
  const p = Number(wanted.get('p') || 0);
  const next = data.programs[p] ? p : 0;
  const set = (map, key, value) => { if (map.get(key) !== value) { map.set(key, value); changed = true; } };
  for (const size of data.programs[next].sizes) {
    const given = Number(wanted.get('size.' + size.name));
    set(state.values, size.name, wanted.has('size.' + size.name) && given >= 0 ? given : size.default);
  }
  const threads = Number(wanted.get('threads')) || data.machine.threads;
  if (threads !== state.threads) changed = true;
  state.threads = threads;
  for (const name of state.machine.keys())
    set(state.machine, name, Number(wanted.get('machine.' + name)) || data.machine[name]);
  if (next !== state.program || changed || !document.querySelector('[data-total]')) showProgram(next);
  select(wanted.get('sel') || null);
  showView(wanted.get('view') || data.view);
}
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    return text;
  }
}

window.addEventListener('hashchange', () => {
  if (location.hash === expected) {
    expected = null;
    return;
  }
  restore(location.hash);
});

// ---- keys ----

const KEYS = [['← →', 'the view before, the next one (in the tabs)'], ['↑ ↓', 'lines of the source'],
              ['Enter', 'select'], ['Escape', 'select nothing'], ['/', 'search'], ['?', 'this list']];

function showKeys() {
  const place = document.getElementById('keys'), button = document.getElementById('help');
  place.hidden = !place.hidden;
  button.setAttribute('aria-expanded', place.hidden ? 'false' : 'true');
  if (!place.firstChild)
    place.append(el('dl', {}, ...KEYS.flatMap(([key, what]) =>
      [el('dt', {}, el('kbd', {}, key)), el('dd', {}, what)])));
}

document.addEventListener('keydown', (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === 'Escape') {
    if (typing) event.target.blur();
    else go({ thing: null });
  } else if (!typing && event.key === '/') {
    event.preventDefault();
    document.getElementById('search').focus();
  } else if (!typing && event.key === '?') showKeys();
});

// ---- search ----

// Lines, modules, steps and kernels whose names have the text; the first is selected, Enter goes to the next.
function matches(text) {
  const wanted = text.toLowerCase(), found = [], has = (name) => name.toLowerCase().includes(wanted);
  if (!wanted) return found;
  const add = (list, thing, name) => list.forEach((each, n) => { if (has(name(each))) found.push(thing(n)); });
  add(data.modules, (n) => `module:${n}`, (module) => module.path);
  add(program().steps, (n) => `step:${state.program}.${n}`, (step) => stepTitle(program(), step));
  data.files.forEach((file, f) => add(file.text.split('\n'), (n) => `line:${f}:${n + 1}`, (line) => line));
  add(data.kernels, (n) => `kernel:${n}`, (kernel) => kernel.name);
  const here = views.get(current).section, isHere = (thing) => (here.querySelector(`[data-thing="${thing}"]`) ? 0 : 1);
  found.sort((a, b) => isHere(a) - isHere(b)); // what is in the view that is shown comes first
  return found;
}

function watchSearch() {
  const input = document.getElementById('search');
  let found = [], at = 0;
  input.addEventListener('input', () => {
    found = matches(input.value);
    at = 0;
    if (found.length) choose(found[0]);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !found.length) return;
    at = (at + 1) % found.length;
    choose(found[at]);
  });
}

// ---- the beginning ----

function begin() {
  document.getElementById('title').textContent = data.model;
  const command = `${data.command}   (tfmc ${data.tfmc}, ${data.machine.isa})`;
  document.getElementById('command').textContent = command;
  document.getElementById('command').setAttribute('title', command);
  const programs = document.getElementById('program');
  data.programs.forEach((each, p) => programs.append(el('option', { value: String(p) }, each.name)));
  programs.addEventListener('change', () => go({ program: Number(programs.value), thing: null }));
  const notes = document.getElementById('notes');
  notes.textContent = data.notes.join(' ');
  notes.hidden = !data.notes.length;
  document.getElementById('help').addEventListener('click', showKeys);
  makeViews();
  followClicks(document.getElementById('main'));
  whenSizesChange(refreshAll);
  watchSearch();
  restore(location.hash || '#');
  document.documentElement.setAttribute('data-open-ms', String(Math.round(performance.now() - started)));
  document.documentElement.setAttribute('data-ready', '1');
}
begin();
