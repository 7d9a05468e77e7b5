// The map: the picture of a program beside the tree of its modules.

// ---- the tree of modules ----

const childrenOf = new Map();
data.modules.forEach((module, n) => { if (module.parent >= 0) push(childrenOf, module.parent, n); });

const treeItems = new Map(); // by module: those that were shown once

function treeItem(module) {
  const children = childrenOf.get(module) || [], name = module ? data.modules[module].path.split('.').pop()
      : data.model;
  const label = el('span', { 'data-thing': `module:${module}`, 'aria-selected': 'false' },
    name + (data.modules[module].layer ? ` · ${data.modules[module].layer}` : ''));
  const item = el('li', { role: 'treeitem', tabindex: module ? '-1' : '0',
                          'aria-expanded': children.length ? 'false' : null }, label);
  treeItems.set(module, item);
  item.expand = (open) => {
    if (!children.length) return;
    item.setAttribute('aria-expanded', open ? 'true' : 'false');
    item.querySelector(':scope > .toggle').textContent = open ? '▾' : '▸';
    if (open && !item.querySelector('ul')) item.append(el('ul', { role: 'group' }, ...children.map(treeItem)));
    const group = item.querySelector('ul');
    if (group) group.hidden = !open;
    markSelection(item);
  };
  if (children.length) {
    const label = { 'aria-label': `open ${name}` };
    const toggle = el('button', { type: 'button', class: 'toggle', tabindex: '-1', ...label }, '▸');
    toggle.addEventListener('click', (event) => {
      event.stopPropagation();
      item.expand(item.getAttribute('aria-expanded') !== 'true');
    });
    item.prepend(toggle);
  }
  return item;
}

function moduleTree() {
  const tree = el('ul', { role: 'tree', 'aria-label': 'modules', class: 'tree' }, treeItem(0));
  treeItems.get(0).expand(true);
  tree.addEventListener('keydown', (event) => {
    const item = event.target.closest('[role=treeitem]');
    if (!item) return;
    const shown = [...tree.querySelectorAll('[role=treeitem]')].filter((each) => !each.closest('ul[hidden]'));
    const move = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    const toggle = item.querySelector(':scope > .toggle'), open = item.getAttribute('aria-expanded');
    if (move) (shown[shown.indexOf(item) + move] || item).focus();
    else if ((event.key === 'ArrowRight' && open === 'false') || (event.key === 'ArrowLeft' && open === 'true'))
      toggle.click();
    else if (event.key === 'Enter') choose(item.querySelector('[data-thing]').getAttribute('data-thing'));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return tree;
}

// Opens all modules around one, and moves the tree so that it is seen.
function showInTree(tree, module) {
  const around = [];
  for (let m = data.modules[module].parent; m >= 0; m = data.modules[m].parent) around.unshift(m);
  for (const m of around) treeItems.get(m).expand(true);
  const label = treeItems.get(module).querySelector('[data-thing]').getBoundingClientRect();
  const frame = tree.getBoundingClientRect();
  if (!frame.height) return;
  if (label.top < frame.top) tree.scrollTop -= frame.top - label.top;
  else if (label.bottom > frame.bottom) tree.scrollTop += label.bottom - frame.bottom;
}

// ---- the view ----

function pathLinks(module) {
  const parts = [];
  for (let m = module; m >= 0; m = data.modules[m].parent) {
    const name = m ? data.modules[m].path.split('.').pop() : data.model;
    parts.unshift(el('button', { type: 'button', class: 'link', 'data-thing': `module:${m}` }, name));
  }
  return parts.flatMap((part, i) => (i ? [' › ', part] : [part]));
}

// The module that the selection is in; -1: nothing is selected.
function selectedModule() {
  const [kind, a, b] = selection.thing ? numbersOf(selection.thing) : [];
  if (kind === 'module') return a;
  if (kind === 'op') return data.programs[a].ops[b].module;
  if (kind === 'step') return data.programs[a].steps[b].module;
  const related = [...selection.related].find((thing) => thing.startsWith(`op:${state.program}.`));
  return related ? program().ops[numbersOf(related)[2]].module : -1;
}

function showMap(place) {
  const map = mapOf(mapChoice.level), wanted = selectedModule(), level = map && indexOf(map).levels.get(0);
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const again = focused && ['data-open', 'data-thing'].find((name) => focused.hasAttribute(name));
  const value = again && focused.getAttribute(again);
  clear(place).append(el('p', { class: 'path' }, ...pathLinks(Math.max(0, wanted))));
  if (!level || !level.boxes.length) {
    place.append(el('p', { class: 'quiet' }, 'Nothing is computed here.'));
    return;
  }
  const inner = indexOf(map).levels.get(Math.max(0, wanted)) || level;
  const module = inner === level ? 0 : wanted;
  const alike = inner.modules.filter((other) => other !== module);
  if (alike.length)
    place.append(el('p', { class: 'quiet' }, `Equal inside: ${alike.slice(0, 2).map(modulePath).join(', ')}` +
      (alike.length > 2 ? ` and ${alike.length - 2} more` : '')));
  place.append(level.w ? el('div', { class: 'scroll picture', tabindex: '0', role: 'group',
                                     'aria-label': 'picture' }, mapPicture(map, wanted))
    : levelList(inner, boxesOf(map, inner, module)));
  const next = again && place.querySelector(`[${again}="${value}"]`);
  if (next) next.focus({ preventScroll: true });
}

// What is selected is opened, with all modules around it.
function openSelected() {
  const module = selectedModule();
  for (let m = module; m >= 0; m = data.modules[m].parent) mapChoice.open.add(m);
}

function viewMap(section) {
  const place = el('div', { class: 'map-place' }), level = el('select', { 'aria-label': 'operations' },
    el('option', { value: 'fused' }, 'after the passes'), el('option', { value: 'primitive' }, 'as written'),
    el('option', { value: 'plan' }, 'steps of a run'));
  const close = el('button', { type: 'button' }, 'close all');
  const change = el('p', { class: 'change-on-map' }), forget = el('button', { type: 'button' }, 'no marks');
  const show = () => {
    level.value = mapChoice.level;
    change.hidden = !mapChoice.change;
    if (mapChoice.change)
      clear(change).append(`${mapChoice.change.title}: − went (as written), + came (after the passes) `, forget);
    showMap(place);
    markSelection(place);
  };
  mapChoice.show = show;
  level.addEventListener('change', () => {
    mapChoice.level = level.value;
    show();
  });
  forget.addEventListener('click', () => {
    mapChoice.change = null;
    show();
  });
  close.addEventListener('click', () => {
    mapChoice.open.clear();
    show();
  });
  const tree = moduleTree();
  section.append(el('p', { class: 'bar-of-view' }, el('label', {}, 'operations ', level), close,
    el('span', { class: 'quiet' }, 'A click on a module selects and opens it in its place; + and − open and close it ' +
      'alone. Round corners: an operation; a double frame: a module; dashed: what comes in or leaves; × 6: so many ' +
      'that look alike.' +
      (data.compare ? ' ≠ differs from the other model, − is here alone, + is there alone.' : ''))),
    change, el('div', { class: 'map-view' }, tree, place));
  const follow = () => {
    openSelected();
    show();
    const module = selectedModule();
    if (module >= 0) showInTree(tree, module);
  };
  whenSelected(follow);
  return follow;
}
